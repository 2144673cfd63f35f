"""How records enter the log: whole runs of producers, and single ones of the broker's services. Each is journalled."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from dejamq_proto.codes import DejamqError, MessageTooLarge
from dejamq_proto.journal.events import Append
from dejamq_proto.journal.writer import Journal
from dejamq_proto.names import DLQ_PREFIX, PROPERTY_RETRY_TOPIC, PROPERTY_UNIQUE_KEY
from dejamq_proto.records import json_columns
from dejamq_proto.records.record import BadRecord, Record, encode
from dejamq_proto.records.run import Ints, Run
from dejamq_proto.records.small_runs import FEW, pieces, unique_key
from dejamq_proto.wire.messages import SendRun

from dejamq_broker.base.counts import Counts
from dejamq_broker.base.identity import IntHost, Site
from dejamq_broker.store import Appended, AppendFew, AppendRun
from dejamq_broker.store.log.append import AppendedFew
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.writing.fence import Fence
from dejamq_broker.writing.record_checks import Few, tags_code_in

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

What = TypeVar("What")
Became = TypeVar("Became")


class RecordOrigin(msgspec.Struct, frozen=True):
    """Why a record is stored: ``kind`` is client, sendback, schedule, admin, …; ``ref`` names what it was made from."""

    kind: str
    ref: str = ""
    asker: Asker = Asker()
    group: str = ""


class RecordWriter:
    """The only way into the log, so that nothing is stored without an APPEND in the journal."""

    def __init__(
        self, store: "MessageStore", journal: Journal, site: Site, counts: Counts,
        on_append_ms: Callable[[float], None], fence: Fence,
    ) -> None:  # fmt: skip
        """``on_append_ms`` is called with the time that each append, and the event loop with it, stood at the disk.

        ``fence`` is asked before each append. Who answers somebody without waiting for slaves asks ``confirm`` then.
        """
        self.check, self.confirm, self.holds = fence.check, fence.confirm, fence.holds
        self._store, self._journal, self.site = store, journal, site
        self.counts, self._on_append_ms = counts, on_append_ms

    def durable(self, log_offset: int) -> "Future[None]":
        """Done when everything before this log offset is on disk."""
        return self._store.durable(log_offset)

    @property
    def end(self) -> int:
        """The log offset behind everything stored so far."""
        return self._store.log_max

    def all_durable(self) -> "Future[None]":
        """Done when everything stored so far is on disk."""
        return self._store.durable(self._store.log_max)

    async def on_disk(self) -> None:
        """Wait until everything stored so far is on disk. Raises StoreError when the disk fails."""
        await asyncio.wrap_future(self.all_durable())

    def put_run(self, run: SendRun, parsed: Run, born_host: IntHost) -> Appended:
        """Store a checked run as one piece. Raises what the store raises; then nothing was stored.

        The journal's line holds columns, one element a record, in the order of the run; ``log_offsets`` are
        what later pulls and send-backs name the records by.
        """
        count = len(parsed)
        key_index = run.queue_index.astype(np.int64) if len(run.queue_index) else np.zeros(count, np.int64)
        tags_codes = run.tags_codes.astype(np.int64) if len(run.tags_codes) else np.zeros(count, np.int64)
        began = perf_counter_ns()
        appended = self._tried(self._store.append_run, AppendRun(
            run=parsed, keys=run.queues, key_index=key_index, tags_codes=tags_codes,
            born_host=born_host, store_host=self.site.store_host_number,
        ))  # fmt: skip
        self._count_run(run, key_index, self._took_us(began))
        if self._journal.on:
            tries = parsed.headers["reconsume_times"]
            self._journal.write(self._line(
                run, queue_index=json_columns.numbers(key_index, 0, count),
                queue_offsets=json_columns.numbers(appended.queue_offsets, 0, count),
                log_offsets=json_columns.numbers(appended.log_offsets, 0, count),
                unique_keys=json_columns.all_keys(parsed),
                reconsume_times=tries.tolist() if tries.any() else [],
            ))  # fmt: skip
        return appended

    def put_few(self, run: SendRun, few: Few, born_host: IntHost) -> AppendedFew | None:
        """As ``put_run``, of a few records; None, with nothing stored, where the log's file has no space for them."""
        began = perf_counter_ns()
        appended = self._tried(self._store.append_few, AppendFew(
            data=run.records[0], pieces=few.pieces, keys=run.queues, key_index=few.key_index,
            tags_codes=few.tags_codes, born_host=born_host, store_host=self.site.store_host_number,
        ))  # fmt: skip
        if appended is None:
            return None
        self._count_run(run, few.key_index, self._took_us(began))
        if self._journal.on:
            start, tries = appended.log_offset, [piece.reconsume_times for piece in few.pieces]
            self._journal.write(self._line(
                run, queue_index=few.key_index, queue_offsets=appended.queue_offsets,
                log_offsets=[start + piece.at for piece in few.pieces],
                unique_keys=[unique_key(piece.properties) for piece in few.pieces],
                reconsume_times=tries if any(tries) else [],
            ))  # fmt: skip
        return appended

    def put(self, record: Record, origin: RecordOrigin) -> Appended:
        """Store the record and tell the journal. Raises what the store raises; then nothing was stored."""
        began = perf_counter_ns()
        try:
            appended = self._tried(self._store.put, record)
        except BadRecord as error:
            raise MessageTooLarge(f"no record can hold it: {error}") from None
        self._count(record, origin, appended, self._took_us(began))
        if self._journal.on:
            asker = origin.asker
            self._journal.write(Append(
                origin=origin.kind, broker_name=self.site.broker_name, topics=[record.topic],
                queue_ids=[record.queue_id], queue_index=[0], queue_offsets=appended.queue_offsets.tolist(),
                log_offsets=appended.log_offsets.tolist(),
                unique_keys=[record.properties.get(PROPERTY_UNIQUE_KEY, "")],
                client_id=asker.client_id, client_boot_id=asker.boot_id, request_seq=asker.seq, group=origin.group,
                origin_refs=[origin.ref] if origin.ref else [],
                reconsume_times=[record.reconsume_times] if record.reconsume_times else [],
            ))  # fmt: skip
        return appended

    def put_all(self, records: Sequence[Record], origin: str) -> list[int] | None:
        """Store the broker's own records of one queue as one piece, with one line in the journal: their queue offsets.

        None, with nothing stored, where they are many, or the log's file has no space for them: ``put`` stores each.
        Raises what the store raises; then nothing was stored.
        """
        made = list(map(encode, records))
        data = b"".join(made)
        found = pieces(data, list(map(len, made))) if len(made) <= FEW else None
        if found is None:
            return None
        began, topic, queue_id = perf_counter_ns(), records[0].topic, records[0].queue_id
        index, host = [0] * len(found), self.site.store_host_number
        appended = self._tried(self._store.append_few, AppendFew(
            data=data, pieces=found, keys=[(topic, queue_id)], key_index=index,
            tags_codes=[tags_code_in(piece.properties) for piece in found], born_host=host, store_host=host,
        ))  # fmt: skip
        if appended is None:
            return None
        self.counts.stored(topic, len(found), len(data), self._took_us(began))
        if self._journal.on:
            start = appended.log_offset
            self._journal.write(Append(
                origin=origin, broker_name=self.site.broker_name, topics=[topic], queue_ids=[queue_id],
                queue_index=index, queue_offsets=appended.queue_offsets,
                log_offsets=[start + piece.at for piece in found],
                unique_keys=[unique_key(piece.properties) for piece in found],
            ))  # fmt: skip
        return appended.queue_offsets

    def _tried(self, append: Callable[[What], Became], what: What) -> Became:
        try:
            self.check()
            return append(what)
        except DejamqError:
            self.counts.refused()
            raise

    def _took_us(self, began_ns: int) -> int:
        """How long an append took that just came back."""
        took_us = (perf_counter_ns() - began_ns) // 1000
        self._on_append_ms(took_us / 1000)
        return took_us

    def _line(self, run: SendRun, **columns: Any) -> Append:
        """A run's line of the journal; the columns have one element a record, in the order of the run."""
        return Append(
            origin="client", broker_name=self.site.broker_name,
            topics=[topic for topic, _ in run.queues], queue_ids=[queue_id for _, queue_id in run.queues],
            client_id=run.client_id, client_boot_id=run.boot_id, request_seq=run.seq, group=run.group, **columns,
        )  # fmt: skip

    def _count_run(self, run: SendRun, key_index: "Ints | list[int]", took_us: int) -> None:
        """Once for each topic of the run; almost all runs are of one."""
        topics, counts = [topic for topic, _ in run.queues], self.counts
        numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
        if len(numbers) == 1:
            counts.stored(topics[0], len(run.sizes), len(run.records[0]), took_us)
            return
        of_record = np.array([numbers[topic] for topic in topics])[key_index]
        messages = np.bincount(of_record, minlength=len(numbers))
        sizes = np.bincount(of_record, weights=run.sizes, minlength=len(numbers)).astype(np.int64)
        of_topics = zip(numbers, messages.tolist(), sizes.tolist(), strict=True)
        counts.stored_run([each for each in of_topics if each[1]], took_us)

    def _count(self, record: Record, origin: RecordOrigin, appended: Appended, took_us: int) -> None:
        counts = self.counts
        counts.stored(record.topic, 1, appended.end_log_offset - int(appended.log_offsets[0]), took_us)
        if record.topic.startswith(DLQ_PREFIX):
            counts.buried(record.topic)
        if origin.kind == "sendback":
            counts.given_back(record.properties.get(PROPERTY_RETRY_TOPIC, record.topic), origin.group)
