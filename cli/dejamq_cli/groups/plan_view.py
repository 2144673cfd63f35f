"""The SDK's own allocation of queues, over given or live lists, or over two lists that differ. Pure.

Nobody hands out queues: each member computes its own share from the lists that it has. While two members act on
different lists, a queue whose owner differs between the lists may have both owners, or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dejamq import MessageQueue
from dejamq.values.allocation import allocate, strategy_named
from dejamq_proto.codes import ConfigError
from dejamq_proto.texts import number_of

from dejamq_cli.terminal.numbers import MOST_QUEUES

TOPIC = "topic"
BROKER = "broker-a"


@dataclass(frozen=True)
class View:
    """The lists that some members see. An id may be in ``members`` twice, as two processes with one client id are."""

    label: str
    members: tuple[str, ...]
    queues: tuple[MessageQueue, ...]

    def shares(self, strategy: str) -> dict[str, list[MessageQueue]]:
        """Each member's own, by client id. Raises ConfigError for an unknown strategy."""
        name, function = strategy_named(strategy)
        members, queues = sorted(self.members), sorted(self.queues)
        topics = [list(some) for _, some in groupby(queues, key=lambda queue: queue.topic)]
        return {
            member: [queue for some in topics for queue in allocate(name, function, some, members, member)]
            for member in members
        }


@dataclass(frozen=True)
class SharePlan:
    """The shares of each view."""

    strategy: str
    views: tuple[View, ...]
    shares: tuple[dict[str, list[MessageQueue]], ...]

    def owners(self, queue: MessageQueue) -> list[list[str]]:
        """By view, who would take the queue."""
        return [[member for member, share in shares.items() if queue in share] for shares in self.shares]

    def queue_rows(self) -> list[dict[str, Any]]:
        """Each queue of any view with its owner by view, and what may come of it."""
        return [self._row(queue) for queue in sorted({queue for view in self.views for queue in view.queues})]

    def _row(self, queue: MessageQueue) -> dict[str, Any]:
        by_view = self.owners(queue)
        twice = any(view.members.count(one) > 1 for view, some in zip(self.views, by_view, strict=True) for one in some)
        differ = len({owner for owners in by_view for owner in owners}) > 1
        return {
            "topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id,
            "owners": [owners[0] if owners else None for owners in by_view],
            "overlap": differ or twice, "gap": differ or not all(by_view),
        }  # fmt: skip


def plan(strategy: str, views: Sequence[View]) -> SharePlan:
    """Raises ConfigError for an unknown strategy."""
    return SharePlan(strategy, tuple(views), tuple(view.shares(strategy) for view in views))


def queue_text(queue: MessageQueue) -> str:
    return f"{queue.topic} {queue.broker_name}:{queue.queue_id}"


def ranges_text(queues: Sequence[MessageQueue]) -> str:
    """Queues of a share in few words: ``orders broker-a:0-3,6 broker-b:0``."""
    words = []
    for topic, of_topic in groupby(sorted(queues), key=lambda queue: queue.topic):
        words.append(topic)
        for broker, some in groupby(of_topic, key=lambda queue: queue.broker_name):
            words.append(f"{broker}:{','.join(_ranges([queue.queue_id for queue in some]))}")
    return " ".join(words) or "-"


def _ranges(numbers: Sequence[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]


def given_members(text: str) -> tuple[str, ...]:
    """``c1,c2,c3``. Raises ConfigError when there is none."""
    members = tuple(word.strip() for word in text.split(",") if word.strip())
    if not members:
        raise ConfigError("--members takes client ids separated by commas, e.g. c1,c2,c3")
    return members


def given_queues(text: str, topic: str = TOPIC) -> tuple[MessageQueue, ...]:
    """``8`` queues of one broker, or ``broker-a:4,broker-b:4``. Raises ConfigError."""
    found = []
    for word in text.split(","):
        broker, _, count = word.strip().rpartition(":")
        number = number_of(count, MOST_QUEUES)
        if not number:
            raise ConfigError(f"--queues takes a number, or BROKER:NUMBER separated by commas, not {text!r}")
        found += [MessageQueue(topic, broker or BROKER, queue_id) for queue_id in range(number)]
    if len(set(found)) < len(found):
        raise ConfigError(f"--queues {text!r} names a broker twice")
    return tuple(found)
