"""Reading the log at a start: where it ends, and the entries that the queues lack, in one go.

A record that a walk finds good is never cut, so it is dispatched at once and nothing is read twice.
"""

from collections.abc import Callable
from itertools import accumulate

import msgspec
from dejamq_proto.records.record import decode

from dejamq_broker.store.log.batch import Batch
from dejamq_broker.store.log.entries import batch_of
from dejamq_broker.store.log.scan import CHUNK_SIZE, Damage, End, FoundRecords, LogFiles, Read, step, walk
from dejamq_broker.store.log.start_point import WHOLE_LOG, StartPoint
from dejamq_broker.store.log.torn import walk_believed
from dejamq_broker.store.queues.consume_queues import ConsumeQueues, Contradiction

WRITE_OUT_EVERY = 64 << 20
ZEROS = bytes(CHUNK_SIZE)


class Scan(msgspec.Struct, frozen=True):
    """The log as it is: good up to ``end`` except for ``damages``."""

    end: int
    reason: str
    damages: tuple[Damage, ...]
    last_store_timestamp_ms: int


class Trust(msgspec.Struct, frozen=True):
    """The meaning of holes in the log.

    It was on disk up to ``durable``: a hole after that is of a power loss and ends it, whatever follows. None: nothing
    is known of that. A hole before it is damage, and ends the log only if so asked.
    """

    durable: int | None = None
    cut_at_damage: bool = False


def scan(read: Read, extent: LogFiles, start: int, trust: Trust, take: Callable[[FoundRecords], None]) -> Scan:
    """Find the end of the log, and hand over the records before it. Changes nothing."""
    damages: list[Damage] = []
    last = 0
    durable = trust.durable
    for piece in walk(read, extent, start) if durable is None else walk_believed(read, extent, start, durable):
        if isinstance(piece, FoundRecords):
            last = _last_stored_ms(piece)
            take(piece)
        elif isinstance(piece, End) or trust.cut_at_damage:
            return Scan(piece.log_offset, piece.reason, tuple(damages), last)
        else:
            damages.append(piece)
    raise AssertionError("a walk ends with an End")


class Noting:
    """Reads a log and notes how far it is not zero, so that nobody has to read what lies behind its end once more."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._at, self._data = 0, b""
        self.reached = 0
        """Everything was read up to here, from where the reading began."""

    def read(self, log_offset: int, size: int) -> bytes:
        data = bytes(self._read(log_offset, size))
        end = log_offset + len(data)
        self.reached = max(self.reached, end)
        if end > self._at + len(self._data) and not ZEROS.startswith(data):
            self._at, self._data = log_offset, data
        return data

    @property
    def used(self) -> int:
        """The log offset behind the last byte that is not zero."""
        return self._at + len(self._data.rstrip(b"\0"))


class Walk:
    """The findings of one walk over the log, and the entries that it gave to the queues."""

    found: Scan
    """Set by ``run``."""
    as_left = False
    """The log ends where a clean stop left it."""
    used: int | None = None
    """The log offset behind the last byte that is not zero, if that was seen."""

    def __init__(self, queues: ConsumeQueues, start: StartPoint, delay_levels_ms: tuple[int, ...]) -> None:
        self._queues, self._start, self._delay_levels_ms = queues, start, delay_levels_ms
        self.strange: list[Damage] = []
        self._before: FoundRecords | None = None
        self._fed = 0

    def run(self, read: Read, extent: LogFiles, trust: Trust) -> None:
        """Raises Incomplete when the queues lack more than they should."""
        noting = Noting(read)
        self.found = scan(noting.read, extent, self._start.walk_from, trust, self._take)
        self.used = noting.used if noting.reached == extent.end else None
        self._compare()

    def _take(self, found: FoundRecords) -> None:
        """Give the queues what begins at or after the point up to which they are complete."""
        feed_from = self._start.feed_from
        if found.log_offset < feed_from:
            self._before = found
        if found.end <= feed_from:
            return
        if found.log_offset < feed_from not in accumulate(found.sizes, initial=found.log_offset):
            raise Contradiction(f"no record begins at {feed_from}, where the mark is")
        self._compare()
        batch = self._batch(found)
        self.strange += self._queues.feed(batch, whole=self._start.rule == WHOLE_LOG)
        self._fed += len(found.data)
        if self._fed >= WRITE_OUT_EVERY:
            self._queues.write_out()
            self._fed = 0

    def _compare(self) -> None:
        """The records before that point must be where the queues say. Raises Incomplete."""
        before, self._before = self._before, None
        if before is not None:
            self._queues.check(self._batch(before), self._start.feed_from)

    def _batch(self, found: FoundRecords) -> Batch:
        return batch_of(found, self._queues.number_of, self._delay_levels_ms)


def ends_at(read: Read, extent: LogFiles, log_offset: int) -> bool:
    """Whether nothing has been written from here on."""
    return log_offset == extent.end or (
        log_offset < extent.end and step(read, extent, log_offset) == End(log_offset, "")
    )


def _last_stored_ms(found: FoundRecords) -> int:
    if found.run is None:
        return decode(found.data, check_crc=False).store_timestamp_ms
    return int(found.run.headers["store_timestamp_ms"].max())
