"""Rules of a round: its action for a half message, and the marks that it may forget. Pure: the time is an argument.

Source: RocketMQ ``TransactionalMessageServiceImpl.check``.
"""

from enum import Enum

import msgspec
from dejamq_proto.records.record import Record

from dejamq_broker.deferred.transactions.records import check_times, immunity_ms


class HalfStep(Enum):
    """The action for a half message that is not ended."""

    STOP = "the round ends here: this one, and all behind it, are too young"
    GIVE_UP = "nobody will be asked any more"
    SPARE = "put back without a question: its program wants more time"
    ASK = "put back, and ask a producer"


class CheckLimits(msgspec.Struct, frozen=True):
    """From when to when a transaction is asked about, and how often; the log keeps messages for ``reserved_ms``."""

    timeout_ms: int
    check_max: int
    reserved_ms: int


def next_step(half: Record, limits: CheckLimits, now_ms: int, began_ms: int) -> HalfStep:
    """``began_ms`` is when the round began. Ages count from the producer's clock; one that is ahead is asked at once.

    RocketMQ first looks at the number of checks, then whether the message was stored in this round. So it leaves the
    last check no time for its answer.
    """
    if half.store_timestamp_ms >= began_ms:
        return HalfStep.STOP
    properties, age_ms = half.properties, now_ms - half.born_timestamp_ms
    if check_times(properties) >= limits.check_max or age_ms > limits.reserved_ms:
        return HalfStep.GIVE_UP
    immune_ms = immunity_ms(properties, limits.timeout_ms)
    if immune_ms is not None:
        return HalfStep.SPARE if age_ms < immune_ms else HalfStep.ASK
    return HalfStep.STOP if 0 <= age_ms < limits.timeout_ms else HalfStep.ASK


def too_late(half: Record, timeout_ms: int, now_ms: int) -> bool:
    """Whether a producer's own word comes after the time that its message asked for; answers to checks never do."""
    immune_ms = immunity_ms(half.properties, timeout_ms)
    return immune_ms is not None and now_ms - half.born_timestamp_ms > immune_ms


class _Op(msgspec.Struct):
    """One op message: the half messages that no round has met yet, and how far the half queue went when it was read."""

    left: set[int]
    half_end: int


class EndMarks:
    """The ended half messages by the op queue, as far as no round has passed them. Queue offsets throughout.

    An op message may be forgotten when all its half messages were met. It may mark a place that the rounds have passed
    already. Then it is kept until the rounds have come to the end that the half queue had when the mark was read. The
    reason: an immune half message that was put back meanwhile is known by its first place. (RocketMQ forgets such marks
    and asks again.)
    """

    def __init__(self, op_offset: int) -> None:
        self.read_until = op_offset
        self._ops: dict[int, _Op] = {}
        self._by_half: dict[int, int] = {}

    def __contains__(self, half_offset: int) -> bool:
        return half_offset in self._by_half

    def add(self, op_offset: int, half_offsets: list[int], half_end: int) -> None:
        """The next op message of the queue."""
        self._ops[op_offset] = _Op(set(half_offsets), half_end)
        self._by_half |= dict.fromkeys(half_offsets, op_offset)
        self.read_until = op_offset + 1

    def take(self, half_offset: int | None) -> bool:
        """Whether this half message has ended; asked once, when a round passes it."""
        op_offset = self._by_half.pop(half_offset, None) if half_offset is not None else None
        if op_offset is None:
            return False
        assert half_offset is not None
        self._ops[op_offset].left.discard(half_offset)
        return True

    def settle(self, passed: int) -> int:
        """The rounds have passed all half messages before this one; gives the first op message still needed."""
        for op_offset, op in list(self._ops.items()):
            if op.half_end <= passed:
                for half_offset in [each for each in op.left if each < passed]:
                    op.left.discard(half_offset)
                    if self._by_half.get(half_offset) == op_offset:
                        del self._by_half[half_offset]
        for op_offset, op in list(self._ops.items()):
            if op.left:
                return op_offset
            del self._ops[op_offset]
        return self.read_until
