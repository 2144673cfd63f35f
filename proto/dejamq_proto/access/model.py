"""Users, resources, actions and rules, with RocketMQ's names. Source: RocketMQ 5 ``auth``."""

import ipaddress
import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from dejamq_proto.account import KEY_NAMES
from dejamq_proto.codes import Code, DejamqError


class Action(StrEnum):
    """What somebody wants to do with a resource. ``ALL`` stands for each of them in rules."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceType(StrEnum):
    """What a resource is. ``SERVER`` is what a cluster keeps for itself: no rule can give a right to it."""

    ANY = "*"
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"
    SERVER = "Server"


class UserType(StrEnum):
    """``SUPER`` may do everything. ``INNER`` is how servers know one another, and may do everything too."""

    SUPER = "Super"
    NORMAL = "Normal"
    INNER = "Inner"


class Status(StrEnum):
    ENABLE = "enable"
    DISABLE = "disable"


class RuleEffect(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    """A ``DEFAULT`` rule counts where no ``CUSTOM`` rule fits."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class User(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``secret`` is the secret key itself: RocketMQ's proofs cannot be checked with less."""

    username: str
    secret: str
    user_type: UserType = UserType.NORMAL
    user_status: Status = Status.ENABLE

    def __repr__(self) -> str:
        """Without the secret: this may come into a log."""
        return f"User({self.username!r}, ***, {self.user_type}, {self.user_status})"

    @property
    def trusted(self) -> bool:
        """It may do everything."""
        return self.user_type is not UserType.NORMAL


class Resource(NamedTuple):
    """One thing that a request touches."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """What one user may do, or may not, with the resources of a pattern: ``Topic:orders``, ``Group:pay*``, ``*``.

    ``source_ips``: addresses or networks (CIDR) that it is for; none: all.
    """

    username: str
    resource: str
    actions: tuple[Action, ...]
    decision: RuleEffect = RuleEffect.ALLOW
    source_ips: tuple[str, ...] = ()
    policy_type: PolicyType = PolicyType.CUSTOM

    @property
    def pattern(self) -> tuple[ResourceType, str]:
        """The kind of the resource and the pattern of its name."""
        kind, colon, name = self.resource.partition(":")
        return (ResourceType(kind), name) if colon else (ResourceType.ANY, "*")

    def fits(self, wanted: Resource) -> bool:
        """Whether the resource is one of the pattern."""
        kind, name = self.pattern
        if kind is not ResourceType.ANY and kind is not wanted.kind:
            return False
        return wanted.name.startswith(name[:-1]) if name.endswith("*") else name == wanted.name

    @property
    def exactness(self) -> tuple[bool, bool, int, bool]:
        """Of two rules that fit, the greater one counts: of this kind, of this name, of the longer prefix, a denial."""
        kind, name = self.pattern
        return kind is not ResourceType.ANY, not name.endswith("*"), len(name), self.decision is RuleEffect.DENY

    def comes_from(self, address: str) -> bool:
        """Whether the rule is for requests from this address."""
        return not self.source_ips or any(in_network(address, each) for each in self.source_ips)


def in_network(address: str, network: str) -> bool:
    """``network``: one address, or a network in CIDR."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


PATTERN = re.compile(r"(?P<kind>Topic|Group|Cluster):(?P<name>[%|a-zA-Z0-9_.+-]*\*?)", re.ASCII)
LONGEST_SECRET = 256


def check_user(user: User) -> None:
    """Raises INVALID_PARAMETER for a user that nobody could be."""
    if not KEY_NAMES.fullmatch(user.username):
        raise _bad(f"user name {user.username[:64]!r} may hold only letters, digits and _ . @ -, at most 64 of them")
    if not 6 <= len(user.secret) <= LONGEST_SECRET or not user.secret.isprintable() or " " in user.secret:
        raise _bad(f"the secret of {user.username} must be 6 to {LONGEST_SECRET} printable characters without blanks")


def check_rule(rule: Rule) -> None:
    """Raises INVALID_PARAMETER for a rule that cannot be meant."""
    found = PATTERN.fullmatch(rule.resource)
    if rule.resource != "*" and not (found and found["name"]):
        text = f"resource {rule.resource[:200]!r} is not Topic:NAME, Group:NAME or Cluster:NAME, each with * at the end"
        raise _bad(f"{text} for all that begin so, or * alone")
    if not rule.actions:
        names = ", ".join(Action)
        raise _bad(f"the rule for {rule.resource} names no action: give some of {names}")
    for network in rule.source_ips:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError:
            raise _bad(f"source {network[:64]!r} is neither an IP address nor a network such as 10.0.0.0/8") from None


def _bad(text: str) -> DejamqError:
    return DejamqError(text, code=Code.INVALID_PARAMETER)


def action_of(text: str) -> Action:
    """By name in any case; ``ANY`` is ``ALL``. Raises INVALID_PARAMETER."""
    wanted = text.strip().lower()
    for action in Action:
        if action.lower() == ("all" if wanted in ("any", "*") else wanted):
            return action
    raise _bad(f"action {text[:40]!r} is none of {', '.join(Action)}")
