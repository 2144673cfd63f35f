"""One decision: may this user do one of these actions with this resource? Pure, with the reason for the log."""

from collections.abc import Iterable
from typing import NamedTuple

from dejamq_proto.access.model import Action, PolicyType, Resource, ResourceType, Rule, RuleEffect, User


class AccessDecision(NamedTuple):
    """``reason`` is why, for operators; the caller is told less."""

    allowed: bool
    reason: str


def decide(
    user: User, rules: Iterable[Rule], resource: Resource, actions: frozenset[Action], address: str
) -> AccessDecision:  # fmt: skip
    """One of the actions suffices. Nothing is allowed that no rule allows.

    Of the rules that fit, the most exact one counts for each action: a name before a prefix, a longer prefix before a
    shorter one, a denial before its opposite. Source: RocketMQ ``AclAuthorizationHandler``.
    """
    if user.trusted:
        return AccessDecision(True, f"{user.user_type} user")
    if resource.kind is ResourceType.SERVER:
        return AccessDecision(False, "only super users and servers may")
    fitting = [rule for rule in rules if rule.fits(resource) and rule.comes_from(address)]
    denied = ""
    for action in sorted(actions):
        rule = _counting(fitting, action)
        if rule is not None and rule.decision is RuleEffect.ALLOW:
            return AccessDecision(True, f"rule for {rule.resource}")
        if rule is not None:
            denied = f"the rule for {rule.resource} denies it"
    return AccessDecision(False, denied or "no rule allows it")


def _counting(fitting: list[Rule], action: Action) -> Rule | None:
    """The rule that decides about this action."""
    those = [rule for rule in fitting if action in rule.actions or Action.ALL in rule.actions]
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        of_kind = [rule for rule in those if rule.policy_type is kind]
        if of_kind:
            return max(of_kind, key=lambda rule: rule.exactness)
    return None
