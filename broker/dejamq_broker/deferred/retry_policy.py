"""How long a group's failed messages wait for their next try. Source: RocketMQ ``GroupRetryPolicy`` and its policies.

RocketMQ keeps the policy with the group and obeys it for consumers of its gRPC protocol. Consumers of the remoting
protocol always get level 3 + tries. Here it is obeyed for all, as far as the delay levels go; without one they are
RocketMQ's.
"""

from typing import Any, Literal

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.loose_json import BAD_JSON

FIRST_RETRY_LEVEL = 3  # 10 s
MOST_DOUBLINGS = 32
Milliseconds = int


class Exponential(msgspec.Struct, frozen=True):
    """``initial`` ms before the first retry, ``multiplier`` times more before each further one, ``max`` at most."""

    initial: Milliseconds = 5_000
    max: Milliseconds = 7_200_000
    multiplier: int = 2

    def delay_ms(self, tries: int) -> Milliseconds:
        factor: int = self.multiplier ** min(tries, MOST_DOUBLINGS)
        return min(self.max, self.initial * factor)


class Customized(msgspec.Struct, frozen=True):
    """A table of delays; as with delay levels, the first retry takes its third entry, and the last one serves all
    further ones.
    """

    next: tuple[Milliseconds, ...]

    def delay_ms(self, tries: int) -> Milliseconds:
        return self.next[min(tries + FIRST_RETRY_LEVEL - 1, len(self.next) - 1)]


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """As ``subscriptionGroup.json`` has it. A type without its policy is the delay levels, as in RocketMQ."""

    type: Literal["CUSTOMIZED", "EXPONENTIAL"] = "CUSTOMIZED"
    exponential_retry_policy: Exponential | None = None
    customized_retry_policy: Customized | None = None

    @property
    def chosen(self) -> Exponential | Customized | None:
        return self.exponential_retry_policy if self.type == "EXPONENTIAL" else self.customized_retry_policy


def retry_level(policy: dict[str, Any], tries: int, levels_ms: tuple[int, ...]) -> int:
    """The delay level of the next try after this number of tries: the first that waits long enough, else the longest.

    A policy that cannot be read (a newer RocketMQ's) counts as no policy: the level is 3 + tries.
    """
    try:
        chosen = _checked(msgspec.convert(policy, RetryPolicy)).chosen
    except (msgspec.ValidationError, ValueError):
        chosen = None
    if chosen is None:
        return FIRST_RETRY_LEVEL + tries
    wanted_ms = chosen.delay_ms(max(tries, 0))
    enough = [(ms, level) for level, ms in enumerate(levels_ms, 1) if ms >= wanted_ms]
    return min(enough)[1] if enough else levels_ms.index(max(levels_ms)) + 1


def waits_of(policy: dict[str, Any], tries: int, levels_ms: tuple[int, ...]) -> list[int]:
    """The waits (ms) before each further try, for consumers that keep to them themselves.

    A table is told as it is: such a consumer takes its first entry for the first retry. Source: RocketMQ
    ``GrpcClientSettingsManager``. Without a policy the table is the delay levels.
    """
    try:
        chosen = _checked(msgspec.convert(policy, RetryPolicy)).chosen
    except (msgspec.ValidationError, ValueError):
        chosen = None
    if isinstance(chosen, Exponential):
        return [chosen.delay_ms(number) for number in range(max(1, min(tries, MOST_DOUBLINGS)))]
    return list(chosen.next if chosen else levels_ms)


def policy_from_json(text: str) -> dict[str, Any]:
    """The policy as the group's file keeps it. Raises INVALID_PARAMETER for a text that is no policy."""
    try:
        policy: dict[str, Any] = msgspec.to_builtins(_checked(msgspec.json.decode(text, type=RetryPolicy)))
    except (ValueError, *BAD_JSON) as error:
        example = '{"type":"EXPONENTIAL","exponentialRetryPolicy":{"initial":5000,"max":7200000,"multiplier":2}}'
        raise DejamqError(f"no retry policy: {error}; write e.g. {example}", code=Code.INVALID_PARAMETER) from None
    return {name: value for name, value in policy.items() if value is not None}


def _checked(policy: RetryPolicy) -> RetryPolicy:
    exponential, customized = policy.exponential_retry_policy, policy.customized_retry_policy
    if exponential is not None and min(exponential.initial, exponential.max, exponential.multiplier) < 1:
        raise ValueError("initial, max and multiplier are 1 or more")
    if customized is not None and (not customized.next or min(customized.next) < 1):
        raise ValueError("next is a list of milliseconds above 0")
    return policy
