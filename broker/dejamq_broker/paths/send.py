"""The send path: check a run, append it, answer. A refused run stores nothing and names the record at fault."""

import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.records.record import BadRecord, Record, decode, decode_properties, encode
from dejamq_proto.records.run import BadRun, Ints, Run, parse
from dejamq_proto.wire.messages import Key, SendRun, SendRunResult, Words

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import IntHost
from dejamq_broker.dedup.deduplication import Deduplication
from dejamq_broker.dedup.ids import Hashes
from dejamq_broker.deferred.delay import scheduled
from dejamq_broker.deferred.retry import Retries
from dejamq_broker.deferred.transactions.halves import Halves
from dejamq_broker.paths.repeats import answer, log_offsets, part_of
from dejamq_broker.paths.replies import Replies
from dejamq_broker.paths.send_intake import refused
from dejamq_broker.store import Appended
from dejamq_broker.store.log.append import AppendedFew
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicConfig, TopicTable, check_queue
from dejamq_broker.timer.rules import TimerRules, out_of
from dejamq_broker.writing.record_checks import check_records, few_of
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

# Runs that leave the choice of the queue to the broker: queue id -1, as clients of other languages may send them.


def placed(run: SendRun, topic_for: Callable[[str], TopicConfig]) -> tuple[SendRun, Words]:
    """The same run to queues that exist, one random queue for each topic, and the queue id of each record.

    Raises BadRun for bytes that are no run of records, and the errors of ``topic_for``. Each record is encoded again,
    as only the record's codec knows where its queue id is. A producer that wants to be fast chooses the queue.

    RocketMQ: SendMessageProcessor (randomQueueId).
    """
    queues = [
        (topic, queue_id if queue_id >= 0 else random.randrange(topic_for(topic).write_queue_nums))
        for topic, queue_id in run.queues
    ]
    index = run.queue_index.tolist() if len(run.queues) > 1 else [0] * len(run.sizes)
    queue_ids = [queues[number][1] for number in index]
    data, parsed = run.records[0], parse(run.records[0], run.sizes)
    records = []
    for number, queue_id in enumerate(queue_ids):
        try:
            record = decode(data, int(parsed.positions[number]), check_crc=False)
        except BadRecord as error:
            raise BadRun(number, str(error)) from None
        records.append(encode(msgspec.structs.replace(record, queue_id=queue_id)))
    changed = msgspec.structs.replace(run, queues=queues, records=(b"".join(records),))
    return changed, np.array(queue_ids, "<u4")


log = logging.getLogger(__name__)
FROM_FIRST = np.zeros(1, "<u4")
"""The one span of records that follow one another in the log."""


class SendOutcome(msgspec.Struct):
    """The answer to a run; with ``durable``, ``replicated`` or ``kept`` it may be given only when those are done.

    ``kept``: the run made a topic, and waits until that is on disk.
    """

    result: SendRunResult
    durable: "Future[None] | None" = None
    replicated: "Awaitable[Code] | None" = None
    kept: "Callable[[], Awaitable[None]] | None" = None

    @property
    def at_once(self) -> bool:
        """Whether nothing has to be waited for."""
        return self.durable is None and self.replicated is None and self.kept is None


class StoredInPart(DejamqError):
    """A run whose records are stored one by one broke off: not retriable as a whole without copies.

    ``log_offsets`` are the places of the first records, which are stored.
    """

    default_code = Code.SYSTEM_ERROR

    def __init__(self, text: str, log_offsets: Ints, stored_ms: int) -> None:
        super().__init__(text)
        self.log_offsets, self.stored_ms = log_offsets, stored_ms


class SendPath:
    """Owned by the event loop: ``accept`` decides and stores in one step, it never waits."""

    def __init__(
        self, config: BrokerConfig, writer: RecordWriter, topics: TopicTable, retries: Retries, replies: Replies,
        halves: Halves, timing: TimerRules, dedup: Deduplication, replicated: Callable[[int], Awaitable[Code]] | None,
    ) -> None:  # fmt: skip
        """``replicated``: done when slaves have everything before a log offset, or will not in time.

        None: nobody waits for slaves, as this broker is no SYNC_MASTER.
        """
        self._writer, self._topics, self._retries, self._replies = writer, topics, retries, replies
        self._halves, self._timing, self._dedup, self._replicated = halves, timing, dedup, replicated
        self._levels = len(config.store.delay_levels_ms)
        self._max_body, self._sync = config.store.max_message_size, config.store.sync_flush
        self.writable = config.writable
        self._closed = False
        self._known_queues: set[Key] = set()
        self._known_by = topics.version

    @property
    def knows_repeats(self) -> bool:
        """Whether a run may ask that nothing of it is stored twice."""
        return self._dedup.on

    def close(self) -> None:
        """Refuse from now on: a refused run was definitely not stored."""
        self._closed = True

    def accept(self, run: SendRun, born_host: IntHost) -> SendOutcome:
        """Store the run or say why not; nothing is raised for a client's errors.

        ``SendOutcome.durable`` is there only with SYNC_FLUSH, ``replicated`` only with SYNC_MASTER. Both need a
        run that waits: RocketMQ's WAIT property, which a run has once for all of its records.
        """
        before = self._topics.version
        try:
            result, end = self._store_run(run, born_host)
        except BadRun as bad:
            return self._refused(run, Code.MESSAGE_ILLEGAL, str(bad), bad.index)
        except DejamqError as error:
            return self._refused(run, error.code, str(error))
        kept = None if self._topics.version is before else self._topics.kept
        if run.no_wait_store or not end:
            return SendOutcome(result, kept=kept)
        return SendOutcome(
            result,
            self._writer.durable(end) if self._sync else None,
            self._replicated(end) if self._replicated else None,
            kept,
        )

    def given_back_durable(self) -> "Future[None] | None":
        """With SYNC_FLUSH, done when all records stored so far are on disk: a consumer may forget the original then."""
        return self._writer.all_durable() if self._sync else None

    def given_back_replicated(self) -> "Awaitable[Code] | None":
        """As ``given_back_durable``, with SYNC_MASTER and for slaves."""
        return self._replicated(self._writer.end) if self._replicated else None

    def require_master(self) -> None:
        """Raise SERVICE_NOT_AVAILABLE at a slave, before it makes a topic for a run that it will not store.

        At a master whose lease is over too.
        """
        if not self._writer.site.master:
            raise DejamqError("this broker is a slave; send to its master", code=Code.SERVICE_NOT_AVAILABLE)
        self._writer.check()

    def _refused(self, run: SendRun, code: Code, remark: str, bad_record: int = -1) -> SendOutcome:
        return SendOutcome(refused(run, DejamqError(remark, code=code), bad_record))

    def _store_run(self, run: SendRun, born_host: IntHost) -> tuple[SendRunResult, int]:
        """The checks in RocketMQ's order: shutting down, topic name, topics that are not for sending, topic and
        queue, then the records. Permissions are not among them, but for ordered topics the broker's own: clients
        obey the route (SendMessageProcessor; only send-backs check).

        Gives the answer, and the log offset after the last record for those that wait for the disk. All queues are
        checked before the first record is stored; topics that did not exist are made even when a later check refuses
        the run.
        """
        if self._closed:
            raise DejamqError("the broker is shutting down; send to another one", code=Code.SERVICE_NOT_AVAILABLE)
        self.require_master()
        plain = self._known().issuperset(run.queues)
        if not plain and any(queue_id < 0 for _, queue_id in run.queues):
            chosen, queue_ids = placed(run, lambda topic: self._topic(topic, run.default_queue_nums))
            result, end = self._store_run(chosen, born_host)
            result.queue_ids = result.queue_ids if len(result.duplicates) else queue_ids
            return result, end
        plain = plain or self._check_queues(run)
        if run.dedup and not run.reply:
            return self._store_new(run, born_host, plain)
        return self._store_checked(run, born_host, plain)

    def _store_checked(self, run: SendRun, born_host: IntHost, plain: bool) -> tuple[SendRunResult, int]:
        """Store the run, whose queues are checked. ``plain``: as ``_check_queues``."""
        one_by_one = run.rewrite or not plain
        if not (one_by_one or run.reply) and (stored := self._store_few(run, born_host)):
            return stored
        parsed = parse(run.records[0], run.sizes)
        check_records(parsed, run, self._max_body)
        if run.reply:
            return self._take_reply(run, parsed, born_host)
        if one_by_one:
            return self._store_each(run, parsed, born_host)
        return self._store_together(run, parsed, born_host)

    def _store_new(self, run: SendRun, born_host: IntHost, plain: bool) -> tuple[SendRunResult, int]:
        """As ``_store_checked``, but messages whose ids are known are answered with the places of the first ones.

        The end is behind those too: no repeat is answered before its first message is as safe as asked.
        """
        if not self._dedup.on:
            text = "this broker keeps no ids of messages (dedup_window_ids is 0), so it cannot tell repeats"
            raise DejamqError(text, code=Code.REQUEST_CODE_NOT_SUPPORTED)
        hashes = self._dedup.hashes(run)
        if hashes is None:  # the checks have the words for it
            return self._store_checked(run, born_host, plain)
        if self._dedup.fresh(run, hashes):
            return self._store_noting(run, hashes, born_host, plain)
        firsts = self._dedup.firsts(run, hashes)
        new = [number for number, first in enumerate(firsts) if first is None]
        stored, end = SendRunResult(seq=run.seq, store_host=self._writer.site.store_address), 0
        offsets = np.empty(0, np.int64)
        if new:
            part = part_of(run, new)
            try:
                stored, end = self._store_noting(part, hashes[new], born_host, plain)
            except BadRun as bad:
                raise BadRun(new[bad.index], bad.reason) from None
            offsets = log_offsets(part.sizes, stored)
        result = answer(run, firsts, new, stored, offsets)
        repeats = {number: first for number, first in enumerate(firsts) if first is not None}
        self._dedup.tell(run, repeats, result)
        return result, max(end, *(first.end for first in repeats.values()), 0)

    def _store_noting(self, run: SendRun, hashes: Hashes, born_host: IntHost, plain: bool) -> tuple[SendRunResult, int]:
        """Store the run, and note what of it is stored."""
        try:
            result, end = self._store_checked(run, born_host, plain)
        except StoredInPart as part:
            count = len(part.log_offsets)
            first = part_of(run, range(count))
            self._dedup.add(first, hashes[:count], part.log_offsets, part.stored_ms)
            raise
        self._dedup.add(run, hashes, log_offsets(run.sizes, result), result.store_timestamp_ms)
        return result, end

    def _known(self) -> set[Key]:
        """Queues that the checks of a run have nothing against as the topics are now, and that are no retries'.

        A run may name hundreds, and a look at each was a tenth of the broker's work for such a run.
        """
        if self._known_by is not self._topics.version:
            self._known_by = self._topics.version
            self._known_queues.clear()
        return self._known_queues

    def _check_queues(self, run: SendRun) -> bool:
        """Whether none of them is a retry's, whose records are stored one by one. Raises as ``_topic``, and
        INVALID_PARAMETER for a queue that is not there.
        """
        plain = True
        for topic, queue_id in run.queues:
            config = self._topic(topic, run.default_queue_nums)
            check_queue(config, queue_id)
            retry = topic.startswith(names.RETRY_PREFIX)
            plain &= not retry
            if not (retry or config.order):  # of an order, the answer depends on more than the topics
                self._known().add((topic, queue_id))
        return plain

    def _topic(self, topic: str, default_queue_nums: int) -> TopicConfig:
        """The topic, made if need be. Raises InvalidName, PermissionDenied, TOPIC_NOT_EXIST."""
        _check_sendable(topic)
        config = self._topics.for_sending(topic, default_queue_nums)
        if config.order and not self.writable:
            raise PermissionDenied(f"this broker may not be written, and messages of {topic!r} have an order")
        return config

    def _store_together(self, run: SendRun, parsed: Run, born_host: IntHost) -> tuple[SendRunResult, int]:
        appended = self._writer.put_run(run, parsed, born_host)
        starts, log_offsets = zip(*appended.spans, strict=True)
        result = self._accepted(run, appended, appended.queue_offsets)
        result.span_starts = np.array(starts, "<u4")
        result.span_log_offsets = np.array(log_offsets, "<u8")
        return result, appended.end_log_offset

    def _store_few(self, run: SendRun, born_host: IntHost) -> tuple[SendRunResult, int] | None:
        """None, with nothing stored, in two cases: it is no run of a few good records, or the log's file has no space
        for it.
        """
        few = few_of(run, self._max_body)
        appended = self._writer.put_few(run, few, born_host) if few else None
        if appended is None:
            return None
        result = self._accepted(run, appended, np.array(appended.queue_offsets))
        result.span_starts, result.span_log_offsets = FROM_FIRST, np.array([appended.log_offset], "<u8")
        return result, appended.end_log_offset

    def _accepted(self, run: SendRun, appended: Appended | AppendedFew, queue_offsets: Ints) -> SendRunResult:
        return SendRunResult(
            seq=run.seq, store_timestamp_ms=appended.store_timestamp_ms, store_host=self._writer.site.store_address,
            queue_offsets=queue_offsets.astype("<u8"),
        )  # fmt: skip

    def _store_each(self, run: SendRun, parsed: Run, born_host: IntHost) -> tuple[SendRunResult, int]:
        """Records with a delay, a time or a transaction, and a consumer's own retries, are re-encoded one by one.

        Rewriting all of them first means that a record that cannot be rewritten refuses the whole run. After
        that only the disk can fail, and then the answer says how many are stored: StoredInPart.
        """
        origin = RecordOrigin("client", asker=Asker(run.client_id, run.boot_id, run.seq), group=run.group)
        records = [self._rewritten(parsed, number, born_host) for number in range(len(parsed))]
        stored: list[Appended] = []
        for record in records:
            try:
                is_half = record.topic == names.HALF_TOPIC
                if record.topic == names.TIMER_TOPIC:
                    self._topics.ensure(names.TIMER_TOPIC, 1)
                stored.append((self._halves if is_half else self._writer).put(record, origin))
            except DejamqError as error:
                if not stored:
                    raise
                raise StoredInPart(
                    f"only {len(stored)} of {len(records)} records are stored: {error}",
                    np.concatenate([each.log_offsets for each in stored]), stored[-1].store_timestamp_ms,
                ) from None  # fmt: skip
        result = self._accepted(run, stored[-1], np.concatenate([each.queue_offsets for each in stored]))
        result.span_starts = np.arange(len(stored), dtype="<u4")
        result.span_log_offsets = np.concatenate([each.log_offsets for each in stored]).astype("<u8")
        result.timer_out_ms = _out_ms(records)
        return result, stored[-1].end_log_offset

    def _take_reply(self, run: SendRun, parsed: Run, born_host: IntHost) -> tuple[SendRunResult, int]:
        """One reply, handed to the client that asked. A reply that is not stored has place 0, as in RocketMQ."""
        if len(parsed) != 1:
            raise BadRun(1, "a reply is a run of its own")
        origin = RecordOrigin("client", asker=Asker(run.client_id, run.boot_id, run.seq), group=run.group)
        appended = self._replies.accept(self._rewritten(parsed, 0, born_host), origin)
        if appended is None:
            zero = np.zeros(1, "<u8")
            place = SendRunResult(
                seq=run.seq, store_host=self._writer.site.store_address, queue_offsets=zero, span_log_offsets=zero
            )
            place.span_starts = np.zeros(1, "<u4")
            return place, 0
        result = self._accepted(run, appended, appended.queue_offsets)
        result.span_starts, result.span_log_offsets = np.zeros(1, "<u4"), appended.log_offsets.astype("<u8")
        return result, appended.end_log_offset

    def _rewritten(self, parsed: Run, number: int, born_host: IntHost) -> Record:
        """The record as it will be stored. Raises before anything of its run is."""
        try:
            record = decode(parsed.data.data, int(parsed.positions[number]), check_crc=False)
        except BadRecord as error:
            raise BadRun(number, str(error)) from None
        born = ".".join(map(str, born_host[0].to_bytes(4, "big"))), born_host[1]
        site = self._writer.site
        properties = _with_cluster(record.raw_properties, site.cluster)
        record = msgspec.structs.replace(record, born_host=born, store_host=site.store_host, raw_properties=properties)
        try:
            return self._waiting(record)
        except BadRecord as error:
            raise BadRun(number, str(error)) from None

    def _waiting(self, record: Record) -> Record:
        """The record as it waits for its producer, its delay or its time; itself when it waits for none.

        A half message waits for its producer first, and is looked at for its time when it is committed. A time that
        cannot be is refused at once all the same. Raises BadRecord.
        """
        half = self._halves.made_of(record)
        if half is not None:
            self._timing.deliver_ms(half.properties)
            return half
        record = self._retries.redirect(record)
        delayed = scheduled(record, self._levels)
        return self._timing.waiting(record) if delayed is record else delayed


def _out_ms(records: list[Record]) -> npt.NDArray[np.uint64]:
    """The slot of each record that waits for its time, and 0 for others; nothing where none does."""
    if all(record.topic != names.TIMER_TOPIC for record in records):
        return np.empty(0, "<u8")
    return np.array([out_of(record.properties) or 0 for record in records], "<u8")


@lru_cache(maxsize=4096)
def _check_sendable(topic: str) -> None:
    """The name first, then whether it is the broker's own (RocketMQ: TopicValidator).

    Raises InvalidName, PermissionDenied. Names that passed are remembered: each run names its topics.
    """
    names.check_topic(topic)
    if topic in names.NOT_FOR_SENDING:
        raise PermissionDenied(f"topic {topic!r} belongs to the broker itself; send to a topic of your own")


def _with_cluster(raw_properties: bytes, cluster: str) -> bytes:
    """Add CLUSTER, which replies are addressed by.

    RocketMQ adds it to every message. Here only messages that are re-encoded anyway get it, requests among them: for
    all others it would cost a copy of each record.
    """
    if names.PROPERTY_CLUSTER in decode_properties(raw_properties):
        return raw_properties
    end = b"" if not raw_properties or raw_properties.endswith(b"\x02") else b"\x02"
    return raw_properties + end + f"{names.PROPERTY_CLUSTER}\x01{cluster}\x02".encode()
