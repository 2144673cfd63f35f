"""The way of an append: check, plan, fill in what the broker knows, copy into the log. Source: ``CommitLog``."""

import threading
from collections.abc import Callable

import msgspec
import numpy as np
from dejamq_proto.codes import MessageTooLarge
from dejamq_proto.record import SYS_TRANSACTION_MASK, Record, body_crc, encode
from dejamq_proto.run import Bytes, Run, fill

from dejamq_broker.store.batch import NOT_QUEUED, Batch, Ints, QueueKey, QueueTable
from dejamq_broker.store.commit_log import CommitLog
from dejamq_broker.store.config import RECORD_ALLOWANCE, StoreConfig
from dejamq_broker.store.entries import UNQUEUED_TYPES, queue_tags_code
from dejamq_broker.store.errors import StoreClosed, StoreError, StoreFull
from dejamq_broker.store.paths import StorePaths

Render = Callable[[Ints, Ints, int], Bytes]
"""Make the final bytes from queue offsets, log offsets and store time (ms)."""


class AppendRun(msgspec.Struct, frozen=True):
    """A checked run to store. Record i goes to ``keys[key_index[i]]``; hosts are (IPv4 as int, port).

    ``tags_codes`` are what the queue entries keep: the tags' hashes, for the schedule topic the delivery times (ms).
    """

    run: Run
    keys: list[QueueKey]
    key_index: Ints
    tags_codes: Ints
    born_host: tuple[int, int]
    store_host: tuple[int, int]


class Appended(msgspec.Struct, frozen=True):
    """What the records became. ``spans`` are (first record number, log offset): a new one begins with each file."""

    store_timestamp_ms: int
    queue_offsets: Ints
    log_offsets: Ints
    spans: list[tuple[int, int]]
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
    ) -> None:
        self._log, self._table, self._paths, self._config, self._clock_ms = log, table, paths, config, clock_ms
        self._lock = threading.Lock()
        self._closed = False
        self.hand_over: Callable[[Batch], None] = lambda batch: None
        self.refusal: Callable[[], StoreError | None] = lambda: None
        """Why nothing may be appended now: the disk failed or is full. None: it may."""

    def close(self) -> bool:
        """Refuse from now on. False when it was closed before. Returns after a running append has ended."""
        with self._lock:
            was, self._closed = self._closed, True
            return not was

    def append_run(self, run: AppendRun) -> Appended:
        """Store all records of the run, or none.

        Short and synchronous. Raises StoreFull, StoreClosed, MessageTooLarge, or StoreError after the disk failed.
        """

        def render(queue_offsets: Ints, log_offsets: Ints, store_timestamp_ms: int) -> Bytes:
            data = run.run.data.copy()
            fill(
                data, run.run, queue_offsets=queue_offsets, log_offsets=log_offsets,
                store_timestamp_ms=store_timestamp_ms, born_host=run.born_host, store_host=run.store_host,
            )  # fmt: skip
            return data

        kinds = run.run.headers["sys_flag"] & SYS_TRANSACTION_MASK
        numbers = np.array([self._number(key) for key in run.keys], np.int64)[run.key_index]
        if kinds.any():
            numbers[np.isin(kinds, UNQUEUED_TYPES)] = NOT_QUEUED
        return self._append(run.run.sizes, numbers, lambda _: run.tags_codes, render)

    def put(self, record: Record) -> Appended:
        """Store one record as it is, except for what the broker fills in: offsets, store time, body CRC.

        Raises as ``append_run``, and BadRecord for what no record can hold.
        """
        record = msgspec.structs.replace(record, body_crc=body_crc(record.body))
        queued = record.transaction_type not in UNQUEUED_TYPES
        number = self._number((record.topic, record.queue_id)) if queued else NOT_QUEUED

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
        return self._append(sizes, np.array([number], np.int64), tags_codes, render)

    def _number(self, key: QueueKey) -> int:
        if key not in self._table.numbers:
            self._paths.consume_queue(*key)
        return self._table.number_of(key)

    def _append(self, sizes: Ints, numbers: Ints, tags_codes: Callable[[int], Ints], render: Render) -> Appended:
        largest = min(self._config.max_message_size + RECORD_ALLOWANCE, self._log.largest_record)
        if int(sizes.max()) > largest:
            raise MessageTooLarge(f"a record of {int(sizes.max())} bytes is over the {largest} that this store takes")
        with self._lock:
            self._check_writable()
            plan = self._log.plan(sizes)
            try:
                self._log.make_room(plan.end)
            except OSError as error:
                raise StoreFull(f"no room for a log file in {self._paths.commit_log}: {error.strerror}") from error
            now = max(self._clock_ms(), self._log.last_store_timestamp_ms)
            queue_offsets = self._table.peek(numbers)
            self._log.write(plan, render(queue_offsets, plan.log_offsets, now), sizes, now)
            self._table.advance(numbers)
            self.hand_over(Batch(plan.log_offsets, sizes, tags_codes(now), numbers, queue_offsets, plan.end, now))
        return Appended(now, queue_offsets, plan.log_offsets, plan.spans, plan.end)

    def _check_writable(self) -> None:
        if self._closed:
            raise StoreClosed(f"the store in {self._paths.root} is closed")
        refusal = self.refusal()
        if refusal:
            raise refusal
