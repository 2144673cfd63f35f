"""Where operators send a group: reset to a time, an offset or an end, or to where another group is.

Source: RocketMQ ``AdminBrokerProcessor.resetOffset`` (the server-side way of 5.x), ``cloneGroupOffset``.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

import msgspec
from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.tables.offsets import Asker, OffsetTable, Position
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable

log = logging.getLogger(__name__)


class To(Enum):
    """The target of a reset."""

    TIME = 0
    OFFSET = 1
    BEGIN = 2
    END = 3


class MoveTarget(msgspec.Struct, frozen=True):
    """``value`` is a store time in ms or a queue offset.

    ``force``: to a time also over messages that were not consumed.
    """

    to: To
    value: int = 0
    force: bool = False


class Move(msgspec.Struct, frozen=True):
    """One queue of a group; ``before`` None: the group had no offset of it. ``reason`` says why it lands there.

    A move that ``stays`` is not made. A move that only lands where it was is made, and messages in flight come again.
    """

    at: Position
    before: int | None
    after: int
    reason: str
    stays: bool = False


class QueueEnds(Protocol):
    """The questions of a plan to the store."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def search_offset(self, topic: str, queue_id: int, timestamp_ms: int) -> int: ...


class OffsetMoves:
    """Plans and makes moves. Owned by the event loop; a plan and its moves are one step, so nothing comes between."""

    def __init__(
        self, ends: QueueEnds, topics: TopicTable, groups: SubscriptionGroupTable, offsets: OffsetTable,
        wake: Callable[[list[tuple[str, int]]], None], confirm: Callable[[], None],
    ) -> None:  # fmt: skip
        """``wake`` makes held pulls of these queues look again. ``confirm`` raises when the moves may not last."""
        self._confirm = confirm
        self._ends, self._topics, self._groups, self._offsets, self._wake = ends, topics, groups, offsets, wake

    def reset(
        self, group: str, topic: str, target: MoveTarget, *, queue_ids: Sequence[int] = (), asker: Asker | None = None
    ) -> list[Move]:
        """The moves of these queues, of all that can be read by default. Made only with an ``asker``, else a plan.

        Raises TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST, INVALID_PARAMETER for a queue or offset that cannot be.
        """
        count = self._topics.require(topic).read_queue_nums
        self._groups.known(group)
        if wrong := [number for number in queue_ids if not 0 <= number < count]:
            raise DejamqError(f"topic {topic!r} has queues 0 to {count - 1}, not {wrong}", code=Code.INVALID_PARAMETER)
        if target.to is To.OFFSET and target.value < 0:
            raise DejamqError(f"{target.value} is no offset to go on at", code=Code.INVALID_PARAMETER)
        moves = [self._plan(Position(group, topic, number), target) for number in queue_ids or range(count)]
        return self._make(moves, "reset", asker)

    def clone(self, source: str, target: str, topic: str, asker: Asker | None = None) -> list[Move]:
        """Let ``target`` go on where ``source`` is, in each queue of which that one has an offset.

        Raises TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST. Made only with an ``asker``.
        """
        self._topics.require(topic)
        self._groups.known(target)
        moves = [
            Move(at := Position(target, topic, queue_id), self._offsets.get(at), committed, f"as {source}")
            for name, queue_id, committed in self._offsets.of_group(source)
            if name == topic
        ]
        return self._make(moves, "clone", asker)

    def topics_of(self, group: str) -> list[str]:
        """The topics of which the group has committed an offset."""
        return sorted({topic for topic, _, _ in self._offsets.of_group(group)})

    def _plan(self, at: Position, target: MoveTarget) -> Move:
        before = self._offsets.get(at)
        low, high = self._ends.min_offset(at.topic, at.queue_id), self._ends.max_offset(at.topic, at.queue_id)
        if target.to is To.BEGIN:
            return Move(at, before, low, "the oldest message")
        if target.to is To.END:
            return Move(at, before, high, "the end")
        if target.to is To.OFFSET:
            after = max(low, min(target.value, high))
            kept = "" if after == target.value else f", kept within {low} to {high}"
            return Move(at, before, after, f"offset {target.value}{kept}")
        return self._plan_time(at, before, target)

    def _plan_time(self, at: Position, before: int | None, target: MoveTarget) -> Move:
        """Without ``force`` a group is only sent back: messages that it has not consumed are not passed over.

        A time below 0 is the end. Source: RocketMQ ``Broker2Client.resetOffset``.
        """
        if target.value < 0:
            found = self._ends.max_offset(at.topic, at.queue_id)
        else:
            found = self._ends.search_offset(at.topic, at.queue_id, target.value)
        if before is not None and found > before and not target.force:
            text = f"stays: that time is at {found}, and going forward needs force"
            return Move(at, before, before, text, stays=True)
        return Move(at, before, found, "the first message of that time")

    def _make(self, moves: list[Move], by: str, asker: Asker | None) -> list[Move]:
        if asker is None:
            return moves
        made = [move for move in moves if not move.stays]
        for move in made:
            self._offsets.move(move.at, move.after, by=by, asker=asker)
            log.info("offset_moved %s by=%s from=%s to=%d", move.at, by, move.before, move.after)
        self._wake(_queues(made))
        self._confirm()
        return moves


def _queues(moves: Iterable[Move]) -> list[tuple[str, int]]:
    return [(move.at.topic, move.at.queue_id) for move in moves]
