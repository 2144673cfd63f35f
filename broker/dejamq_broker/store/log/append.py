"""The way of an append: check, plan, fill in the broker's fields, copy into the log. Source: ``CommitLog``."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from dejamq_proto.codes import MessageTooLarge
from dejamq_proto.records.record import SYS_TRANSACTION_MASK, Record, body_crc, encode
from dejamq_proto.records.run import Bytes, Run, Stamp, fill, fill_one
from dejamq_proto.records.small_runs import SmallRecord

from dejamq_broker.store.files.config import RECORD_ALLOWANCE, StoreConfig
from dejamq_broker.store.files.errors import StoreClosed, StoreError, StoreFollows, StoreFull
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.batch import (
    NO_GROUPS,
    NOT_QUEUED,
    Batch,
    Groups,
    Ints,
    QueueKey,
    QueueTable,
    Single,
    grouped,
    one_group,
)
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.entries import UNQUEUED_TYPES, queue_tags_code, unqueued

Render = Callable[[Ints, Ints, int], Bytes]
"""Make the final bytes from queue offsets, log offsets and store time (ms)."""


class AppendRun(msgspec.Struct, frozen=True):
    """A checked run to store. Record i goes to ``keys[key_index[i]]``; hosts are (IPv4 as int, port).

    The broker's own fields are filled in within the run, if it may be written, and else in a copy.

    ``tags_codes`` are what the queue entries keep: the tags' hashes, for the schedule topic the delivery times (ms).
    """

    run: Run
    keys: list[QueueKey]
    key_index: Ints
    tags_codes: Ints
    born_host: tuple[int, int]
    store_host: tuple[int, int]


class Appended(msgspec.Struct, frozen=True):
    """The places of the records after the append.

    ``spans`` are (first record number, log offset): a new one begins with each file.
    """

    store_timestamp_ms: int
    queue_offsets: Ints
    log_offsets: Ints
    spans: list[tuple[int, int]]
    end_log_offset: int


class AppendFew(msgspec.Struct, frozen=True, gc=False):
    """A checked run of a few records, in plain numbers. As ``AppendRun``, which ``data`` would be the bytes of."""

    data: bytes | memoryview
    pieces: list[SmallRecord]
    keys: list[QueueKey]
    key_index: list[int]
    tags_codes: list[int]
    born_host: tuple[int, int]
    store_host: tuple[int, int]


class AppendedFew(msgspec.Struct, frozen=True, gc=False):
    """The places of a few records after the append.

    They follow one another in the log from ``log_offset`` on, in one file.
    """

    store_timestamp_ms: int
    queue_offsets: list[int]
    log_offset: int
    end_log_offset: int


class Appender:
    """The one writer of the log. ``hand_over`` takes what was appended, in log order, under the append lock."""

    def __init__(
        self,
        log: CommitLog,
        table: QueueTable,
        paths: StorePaths,
        config: StoreConfig,
        clock_ms: Callable[[], int],
        *,
        hand_over: Callable[[Batch | Single], None],
        refusal: Callable[[], StoreError | None],
        copies_only: bool,
    ) -> None:
        """``refusal``: why nothing may be appended now, as the disk failed or is full; None: it may.

        ``copies_only``: a slave's log takes only its master's records.
        """
        self._log, self._table, self._paths, self._config, self._clock_ms = log, table, paths, config, clock_ms
        self.hand_over, self._refusal, self._copies_only = hand_over, refusal, copies_only
        self._lock = threading.Lock()
        self._closed = False
        self._largest = min(config.max_message_size + RECORD_ALLOWANCE, log.largest_record)

    def close(self) -> bool:
        """Refuse from now on. False when it was closed before. Returns after a running append has ended."""
        with self._lock:
            was, self._closed = self._closed, True
            return not was

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Inside, the log is the caller's to write. Raises StoreClosed, StoreFull, StoreError when it may not be."""
        with self._lock:
            self._check_writable(copied=True)
            yield

    def append_run(self, run: AppendRun) -> Appended:
        """Store all records of the run, or none.

        Short and synchronous. Raises StoreFull, StoreClosed, MessageTooLarge, or StoreError after the disk failed.
        """
        sizes = run.run.sizes
        self._check_sizes(sizes, len(run.run.data))

        def render(queue_offsets: Ints, log_offsets: Ints, store_timestamp_ms: int) -> Bytes:
            data = run.run.data if run.run.data.flags.writeable else run.run.data.copy()
            fill(data, run.run, queue_offsets, log_offsets, (*run.born_host, store_timestamp_ms, *run.store_host))
            return data

        return self._append(sizes, run.run.positions, self._groups(run), lambda _: run.tags_codes, render)

    def append_few(self, run: AppendFew) -> AppendedFew | None:
        """As ``append_run``; None, with nothing stored, where they do not all go into the file that is there."""
        size, log = len(run.data), self._log
        if max(piece.size for piece in run.pieces) > self._largest:
            return None
        numbers = self._numbers(run)
        filled = bytearray(run.data)
        with self._lock:
            self._check_writable()
            if not log.has_room(size):
                return None
            now, start = self._now(), log.max_offset
            singles = self._fill(run, filled, numbers, (*run.born_host, now, *run.store_host))
            log.write_here(filled, now)
            following = self._table.next
            for single in singles:
                if single.queue_number >= 0:
                    following[single.queue_number] = single.queue_offset + 1
                self.hand_over(single)
        return AppendedFew(now, [single.queue_offset for single in singles], start, start + size)

    def _numbers(self, run: AppendFew) -> list[int]:
        """The queue that each record goes to; NOT_QUEUED for one that gets no entry."""
        numbers = [self._number(key) for key in run.keys]
        return [
            NOT_QUEUED if piece.sys_flag & SYS_TRANSACTION_MASK in UNQUEUED_TYPES else numbers[index]
            for piece, index in zip(run.pieces, run.key_index, strict=True)
        ]

    def _fill(self, run: AppendFew, target: bytearray, numbers: list[int], stamp: Stamp) -> list[Single]:
        """Write the broker's fields; what the queues get of each record. The caller holds the lock."""
        singles: list[Single] = []
        start, following = self._log.max_offset, self._table.next
        taken: dict[int, int] = {}
        for piece, number, tags_code in zip(run.pieces, numbers, run.tags_codes, strict=True):
            queue_offset = 0
            if number >= 0:
                queue_offset = taken.get(number, following[number])
                taken[number] = queue_offset + 1
            at = start + piece.at
            fill_one(target, piece.at, (queue_offset, at), stamp)
            singles.append(Single(at, piece.size, tags_code, queue_offset, number, at + piece.size, stamp[2]))
        return singles

    def _groups(self, run: AppendRun) -> Groups:
        numbers = [self._number(key) for key in run.keys]
        without = unqueued(run.run)
        if len(numbers) == 1 and without is None:
            return one_group(numbers[0], len(run.key_index))
        queue_numbers = np.array(numbers, np.int64)[run.key_index]
        if without is not None:
            queue_numbers[without] = NOT_QUEUED
        return grouped(queue_numbers)

    def put(self, record: Record) -> Appended:
        """Store one record as it is, except for the fields that the broker fills in: offsets, store time, body CRC.

        Raises as ``append_run``, and BadRecord for values that no record can hold.
        """
        record = msgspec.structs.replace(record, body_crc=body_crc(record.body))
        queued = record.transaction_type not in UNQUEUED_TYPES
        groups = one_group(self._number((record.topic, record.queue_id)), 1) if queued else NO_GROUPS

        def tags_codes(store_timestamp_ms: int) -> Ints:
            stamped = msgspec.structs.replace(record, store_timestamp_ms=store_timestamp_ms)
            return np.array([queue_tags_code(stamped, self._config.delay_levels_ms)], np.int64)

        def render(queue_offsets: Ints, log_offsets: Ints, store_timestamp_ms: int) -> Bytes:
            final = msgspec.structs.replace(
                record, queue_offset=int(queue_offsets[0]), log_offset=int(log_offsets[0]),
                store_timestamp_ms=store_timestamp_ms,
            )  # fmt: skip
            return np.frombuffer(encode(final), np.uint8)

        sizes = np.array([len(encode(record))], np.int64)
        self._check_sizes(sizes, int(sizes[0]))
        return self._append(sizes, np.zeros(1, np.int64), groups, tags_codes, render)

    def _number(self, key: QueueKey) -> int:
        number = self._table.numbers.get(key)
        if number is None:
            self._paths.consume_queue(*key)
            number = self._table.number_of(key)
        return number

    def _append(
        self, sizes: Ints, positions: Ints, groups: Groups, tags_codes: Callable[[int], Ints], render: Render
    ) -> Appended:
        with self._lock:
            self._check_writable()
            plan = self._log.plan(sizes, positions)
            try:
                self._log.make_room(plan.end)
            except OSError as error:
                raise StoreFull(f"no room for a log file in {self._paths.commit_log}: {error.strerror}") from error
            now = self._now()
            queue_offsets = self._table.peek(groups, len(sizes))
            self._log.write(plan, render(queue_offsets, plan.log_offsets, now), sizes, now)
            self._table.advance(groups)
            self.hand_over(Batch(plan.log_offsets, sizes, tags_codes(now), queue_offsets, groups, plan.end, now))
        return Appended(now, queue_offsets, plan.log_offsets, plan.spans, plan.end)

    def _now(self) -> int:
        """The store time (ms) of the records that are appended now: it never goes back, though the clock may."""
        now, last = self._clock_ms(), self._log.last_store_timestamp_ms
        return now if now > last else last

    def _check_sizes(self, sizes: Ints, size: int) -> None:
        """``size`` is the size of all records together."""
        if size > self._largest and int(sizes.max()) > self._largest:
            raise MessageTooLarge(
                f"a record of {int(sizes.max())} bytes is over the {self._largest} that this store takes"
            )

    def _check_writable(self, *, copied: bool = False) -> None:
        if self._closed:
            raise StoreClosed(f"the store in {self._paths.root} is closed")
        if self._copies_only and not copied:
            raise StoreFollows("this broker is a slave, its log is its master's: send to the master")
        refusal = self._refusal()
        if refusal:
            raise refusal
