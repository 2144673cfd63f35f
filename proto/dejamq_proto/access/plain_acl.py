"""RocketMQ 4's file of accounts, ``plain_acl.yml``, as users and rules. Source: RocketMQ 4.9 ``PlainAccessConfig``."""

import ipaddress
from pathlib import Path
from typing import NamedTuple

import msgspec

from dejamq_proto import names
from dejamq_proto.access.model import Action, PolicyType, Rule, RuleEffect, User, UserType
from dejamq_proto.codes import ConfigError

PERMS = {"DENY": (), "PUB": (Action.PUB,), "SUB": (Action.SUB,), "ANY": (Action.PUB, Action.SUB)}
SHORTEST_SECRET = 6


class PlainAcl(NamedTuple):
    """``white``: addresses that are asked for nothing. ``white_of``: addresses that need no proof for an account."""

    users: tuple[User, ...] = ()
    rules: tuple[Rule, ...] = ()
    white: tuple[str, ...] = ()
    white_of: tuple[tuple[str, str], ...] = ()

    def trusts(self, address: str, access_key: str = "") -> bool:
        """Whether requests from this address need no proof: at all, or for this account."""
        own = (pattern for name, pattern in self.white_of if access_key and name == access_key)
        return any(is_of(address, pattern) for pattern in (*(() if access_key else self.white), *own))


class _Account(msgspec.Struct, rename="camel"):
    """Keys of digits alone are numbers to YAML."""

    access_key: str | int
    secret_key: str | int
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str = "DENY"
    default_group_perm: str = "DENY"
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    @property
    def name(self) -> str:
        return str(self.access_key)


class _File(msgspec.Struct, rename="camel"):
    global_white_remote_addresses: list[str] | None = None
    accounts: list[_Account] | None = None


def read_plain_acl(file: Path) -> PlainAcl:
    """Nothing where there is no file. Raises ConfigError for one that cannot be used."""
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        return PlainAcl()
    except OSError as error:
        raise ConfigError(f"cannot read the accounts in {file}: {error.strerror}") from None
    try:
        read = msgspec.yaml.decode(raw, type=_File, strict=False) if raw.strip() else _File()
    except ImportError:
        raise ConfigError(f"{file} needs PyYAML: pip install 'dejamq[broker]'") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"{file} holds no accounts: {str(error).splitlines()[0]}") from None
    try:
        return _of(read)
    except ValueError as error:
        raise ConfigError(f"{file}: {error}") from None


def _of(read: _File) -> PlainAcl:
    accounts = read.accounts or []
    for one in accounts:
        if not one.name.strip() or len(str(one.secret_key)) < SHORTEST_SECRET:
            text = f"account {one.name[:64]!a} needs a name and a secretKey of {SHORTEST_SECRET} letters at least"
            raise ValueError(text)
    return PlainAcl(
        tuple(User(one.name, str(one.secret_key), UserType.SUPER if one.admin else UserType.NORMAL)
              for one in accounts),
        tuple(rule for one in accounts for rule in _rules(one)),
        tuple(read.global_white_remote_addresses or ()),
        tuple((one.name, one.white_remote_address) for one in accounts if one.white_remote_address),
    )  # fmt: skip


def _rules(account: _Account) -> list[Rule]:
    """``topicPerms`` name topics, and ``groupPerms`` groups; everything else is as the defaults say."""
    found: list[Rule] = []
    for kind, default, perms in (
        ("Topic", account.default_topic_perm, account.topic_perms),
        ("Group", account.default_group_perm, account.group_perms),
    ):
        if actions := _actions(default):
            found.append(Rule(account.name, f"{kind}:*", actions, policy_type=PolicyType.DEFAULT))
        for perm in perms or ():
            name, equals, text = perm.partition("=")
            if not equals or not name.strip():
                raise ValueError(f"{perm!r} of {account.name} is not NAME=PERM")
            of = "Group" if name.strip().startswith(names.RETRY_PREFIX) else kind
            name = name.strip().removeprefix(names.RETRY_PREFIX)
            actions = _actions(text)
            found.append(Rule(
                account.name, f"{of}:{name}", actions or (Action.ALL,),
                RuleEffect.ALLOW if actions else RuleEffect.DENY,
            ))  # fmt: skip
    return found


def _actions(text: str) -> tuple[Action, ...]:
    """Raises ValueError."""
    found: list[Action] = []
    for part in text.split("|"):
        if part.strip().upper() not in PERMS:
            raise ValueError(f"{text!r} is no permission: DENY, PUB, SUB, PUB|SUB or ANY")
        found += PERMS[part.strip().upper()]
    return tuple(dict.fromkeys(found))


def is_of(address: str, pattern: str) -> bool:
    """RocketMQ's patterns: ``10.0.*.*``, ``10.0.1.{5,7}``, ``10.0.1-9.*``, several with commas, or CIDR.

    Source: RocketMQ ``RemoteAddressStrategyFactory``.
    """
    if not pattern.strip():
        return False
    if pattern.strip() in ("*", "*.*.*.*"):
        return True
    if "{" in pattern:
        head, _, rest = pattern.partition("{")
        inside, _, tail = rest.partition("}")
        return any(is_of(address, f"{head}{part.strip()}{tail}") for part in inside.split(","))
    if "," in pattern:
        return any(is_of(address, part) for part in pattern.split(","))
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(pattern.strip(), strict=False)
    except ValueError:
        return _fits_by_parts(address, pattern.strip())


def _fits_by_parts(address: str, pattern: str) -> bool:
    mine, wanted = address.split("."), pattern.split(".")
    return len(mine) == len(wanted) == 4 and all(map(_fits_part, mine, wanted))


def _fits_part(mine: str, wanted: str) -> bool:
    low, dash, high = wanted.partition("-")
    if wanted == "*":
        return True
    if not dash:
        return mine == wanted
    return low.isdecimal() and high.isdecimal() and mine.isdecimal() and int(low) <= int(mine) <= int(high)
