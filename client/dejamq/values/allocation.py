"""Who consumes which queue: pure functions that every member of a group computes alone from the same two lists.

Nobody hands out queues. Each member sorts the queues and the members' client ids, applies the same function and takes
its own share; while the members' lists differ, shares may overlap (a duplicate) or leave a queue without an owner.
A strategy that does not find its own id in the list takes nothing. Source: RocketMQ ``AllocateMessageQueue*``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from dejamq_proto.allocation import averagely, averagely_by_circle
from dejamq_proto.codes import ConfigError

from dejamq.values.hash_ring import consistent_hash
from dejamq.values.message import MessageQueue

Queue = TypeVar("Queue")
Strategy = Callable[[Sequence[Any], Sequence[str], str], list[Any]]
"""``(queues, members, me) -> my share``; queues of one topic and client ids, both sorted."""


@dataclass(frozen=True)
class ByConfig:
    """The queues that this client was given, whoever else is in the group: every member needs a list of its own.

    Those that a topic does not have (now) are left out. The retry queue of the group belongs to nobody unless one of
    the lists names it, and what fails is then never delivered again, as in RocketMQ.

    >>> ByConfig([2, 5])([0, 1, 2, 3], ["c1", "c2"], "c1")
    [2]
    >>> ByConfig([3, 1])([0, 1, 2, 3], ["c1", "c2"], "c2")
    [1, 3]
    """

    mine: Sequence[Any]
    name = "by_config"

    def __call__(self, queues: Sequence[Queue], members: Sequence[str], me: str) -> list[Queue]:
        return [queue for queue in queues if queue in self.mine]


STRATEGIES: dict[str, Strategy] = {
    "averagely": averagely,
    "averagely_by_circle": averagely_by_circle,
    "consistent_hash": consistent_hash,
}


def strategy_named(allocation: str | Strategy) -> tuple[str, Strategy]:
    """The name that journal and heartbeat tell, and the function.

    Raises ConfigError for an unknown name, and for what is no plain function.
    """
    if isinstance(allocation, str):
        if allocation not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ConfigError(f"allocation {allocation!r} is unknown; use one of {known}, or a function of your own")
        return allocation, STRATEGIES[allocation]
    if not callable(allocation) or iscoroutinefunction(allocation):
        raise ConfigError(f"allocation is a name or a plain function (queues, members, me) -> list, not {allocation!r}")
    name = getattr(allocation, "name", None) or getattr(allocation, "__name__", None) or type(allocation).__name__
    return name, allocation


def allocate(
    name: str, strategy: Strategy, queues: Sequence[MessageQueue], members: Sequence[str], me: str
) -> list[MessageQueue]:
    """This member's share by a strategy that anybody may have written.

    Raises ConfigError when it fails, or answers anything but a list of some of the queues, each once. It gets lists of
    its own, which it may change.
    """
    try:
        share = strategy(list(queues), list(members), me)
    except BaseException as error:
        raise ConfigError(f"allocation {name!r} failed: {error!r}") from error
    if not isinstance(share, list | tuple):
        raise ConfigError(f"allocation {name!r} answered {share!r}; it must return a list of queues")
    strange = [queue for queue in share if queue not in queues]
    if strange:
        raise ConfigError(f"allocation {name!r} answered {strange[0]!r}, which is none of the topic's queues")
    if len(set(share)) < len(share):
        raise ConfigError(f"allocation {name!r} answered a queue twice: {share!r}")
    return list(share)
