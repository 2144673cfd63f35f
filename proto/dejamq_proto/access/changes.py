"""Changes of users and rules, as every door that takes them makes them. Texts come in, in RocketMQ's words."""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeVar

import msgspec

from dejamq_proto.access.book import Contents, with_rules, with_user, without_rules, without_user
from dejamq_proto.access.model import PolicyType, Rule, RuleEffect, Status, User, UserType, action_of
from dejamq_proto.codes import Code, DejamqError

Word = TypeVar("Word", bound=Enum)
Change = Callable[[Contents], Contents]
SUBJECT = "User:"


def created(name: str, secret: str, user_type: str = "", status: str = "") -> Change:
    """A new user. Refused with INVALID_PARAMETER where another one of this name is there."""

    def change(contents: Contents) -> Contents:
        kind, state = word(user_type, UserType, UserType.NORMAL), word(status, Status, Status.ENABLE)
        made = User(name, secret, kind, state)
        if made not in contents.users and any(user.username == name for user in contents.users):
            raise _bad(f"user {name[:64]!r} is there already: update it")
        return with_user(contents, made)

    return change


def updated(name: str, secret: str = "", user_type: str = "", status: str = "") -> Change:
    """A user with what is given here; empty texts change nothing. Refused with QUERY_NOT_FOUND."""

    def change(contents: Contents) -> Contents:
        known = next((user for user in contents.users if user.username == name), None)
        if known is None:
            raise DejamqError(f"no user is named {name[:64]!r}", code=Code.QUERY_NOT_FOUND)
        after = msgspec.structs.replace(
            known, secret=secret or known.secret, user_type=word(user_type, UserType, known.user_type),
            user_status=word(status, Status, known.user_status),
        )  # fmt: skip
        return _with_a_super(contents, with_user(contents, after))

    return change


def deleted(name: str) -> Change:
    """Without a user, and without its rules. Refused with QUERY_NOT_FOUND."""
    return lambda contents: _with_a_super(contents, without_user(contents, name))


def ruled(rules: Iterable[Rule]) -> Change:
    """With these rules; each takes the place of the one of the same user, kind and resource."""
    new = tuple(rules)
    return lambda contents: with_rules(contents, new)


def unruled(name: str, resource: str = "", policy_type: str = "") -> Change:
    """Without the user's rules for a resource, all for ''. Refused with QUERY_NOT_FOUND where there is none."""
    kind = word(policy_type, PolicyType, None)

    def goes(rule: Rule) -> bool:
        return (not resource or rule.resource == resource) and (kind is None or rule.policy_type is kind)

    return lambda contents: without_rules(contents, name, goes)


def rule_of(
    name: str, resource: str, actions: Iterable[str], decision: str = "", source_ips: Iterable[str] = (),
    policy_type: str = "",
) -> Rule:  # fmt: skip
    """A rule of texts. Raises INVALID_PARAMETER for an action or a decision that there is not."""
    return Rule(
        name, resource.strip(), tuple(dict.fromkeys(action_of(each) for each in actions)),
        word(decision, RuleEffect, RuleEffect.ALLOW), tuple(each.strip() for each in source_ips if each.strip()),
        word(policy_type, PolicyType, PolicyType.CUSTOM),
    )  # fmt: skip


def subject_name(subject: str) -> str:
    """``User:NAME`` as the name. Raises INVALID_PARAMETER."""
    name = subject.removeprefix(SUBJECT)
    if name == subject or not name:
        raise _bad(f"subject {subject[:64]!r} is not User:NAME")
    return name


def word(text: str, kind: type[Word], otherwise: "Word | None") -> "Word":
    """The value of this name in any case, ``otherwise`` for ''. Raises INVALID_PARAMETER."""
    if not text:
        return otherwise  # type: ignore[return-value]  # None where the caller takes that
    for value in kind:
        if str(value.value).lower() == text.strip().lower():
            return value
    raise _bad(f"{text[:40]!r} is none of {', '.join(str(value.value) for value in kind)}")


def _with_a_super(before: Contents, after: Contents) -> Contents:
    """Refused where the last one who could make changes would go."""

    def any_super(contents: Contents) -> bool:
        return any(user.user_type is UserType.SUPER and user.user_status is Status.ENABLE for user in contents.users)

    if any_super(before) and not any_super(after):
        raise _bad("this is the last super user: nobody could change users any more, make another one first")
    return after


def _bad(text: str) -> DejamqError:
    return DejamqError(text, code=Code.INVALID_PARAMETER)
