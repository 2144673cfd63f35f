"""The send path: check a run, append it, answer. A refused run stores nothing and names the record at fault."""

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import lru_cache

import msgspec
import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.record import BadRecord, Record, decode, decode_properties
from dejamq_proto.run import BadRun, Ints, Run, parse
from dejamq_proto.wire import Key, SendRun, SendRunResult

from dejamq_broker.config import BrokerConfig
from dejamq_broker.delay import scheduled
from dejamq_broker.offsets import Asker
from dejamq_broker.placing import placed
from dejamq_broker.record_checks import check_records, few_of
from dejamq_broker.record_writer import Origin, RecordWriter
from dejamq_broker.replies import Replies
from dejamq_broker.retry import Retries
from dejamq_broker.send_intake import refused
from dejamq_broker.site import IntHost
from dejamq_broker.store import Appended
from dejamq_broker.store.append import AppendedFew
from dejamq_broker.topics import TopicConfig, TopicTable, check_queue
from dejamq_broker.transaction_halves import Halves

log = logging.getLogger(__name__)
FROM_FIRST = np.zeros(1, "<u4")
"""The one span of records that follow one another in the log."""


class Outcome(msgspec.Struct):
    """The answer to a run; with ``durable`` or ``replicated`` it may be given only when those are done."""

    result: SendRunResult
    durable: "Future[None] | None" = None
    replicated: "Awaitable[Code] | None" = None


class StoredInPart(DejamqError):
    """A run whose records are stored one by one broke off: not retriable as a whole without copies."""

    default_code = Code.SYSTEM_ERROR


class Sender:
    """Owned by the event loop: ``accept`` decides and stores in one step, it never waits."""

    def __init__(
        self, config: BrokerConfig, writer: RecordWriter, topics: TopicTable, retries: Retries, replies: Replies
    ) -> None:
        self._writer, self._topics, self._retries, self._replies = writer, topics, retries, replies
        self.halves = Halves(writer, topics, reject=config.reject_transaction_message)
        self._levels = len(config.store.delay_levels_ms)
        self._max_body, self._sync = config.store.max_message_size, config.store.sync_flush
        self.writable = config.writable
        self._closed = False
        self._known_queues: set[Key] = set()
        self._known_by = topics.version
        self.replicated: Callable[[int], Awaitable[Code]] | None = None
        """With SYNC_MASTER: done when slaves have everything before a log offset, or will not in time."""

    def close(self) -> None:
        """Refuse from now on: what is refused was definitely not stored."""
        self._closed = True

    def accept(self, run: SendRun, born_host: IntHost) -> Outcome:
        """Store the run or say why not; nothing is raised for what a client did wrong.

        ``Outcome.durable`` is there only with SYNC_FLUSH, ``replicated`` with SYNC_MASTER, both for a run that waits:
        RocketMQ's WAIT property, which a run has once for all of its records.
        """
        try:
            result, end = self._store_run(run, born_host)
        except BadRun as bad:
            return self._refused(run, Code.MESSAGE_ILLEGAL, str(bad), bad.index)
        except DejamqError as error:
            return self._refused(run, error.code, str(error))
        if run.no_wait_store or not end:
            return Outcome(result)
        return Outcome(
            result, self._writer.durable(end) if self._sync else None, self.replicated(end) if self.replicated else None
        )

    def given_back_durable(self) -> "Future[None] | None":
        """With SYNC_FLUSH, done when what was stored so far is on disk: a consumer may forget the original then."""
        return self._writer.all_durable() if self._sync else None

    def given_back_replicated(self) -> "Awaitable[Code] | None":
        """As ``given_back_durable``, with SYNC_MASTER and for slaves."""
        return self.replicated(self._writer.end) if self.replicated else None

    def require_master(self) -> None:
        """Raise SERVICE_NOT_AVAILABLE at a slave, before it makes a topic for what it will not store."""
        if not self._writer.site.master:
            raise DejamqError("this broker is a slave; send to its master", code=Code.SERVICE_NOT_AVAILABLE)

    def _refused(self, run: SendRun, code: Code, remark: str, bad_record: int = -1) -> Outcome:
        return Outcome(refused(run, DejamqError(remark, code=code), bad_record))

    def _store_run(self, run: SendRun, born_host: IntHost) -> tuple[SendRunResult, int]:
        """The checks in RocketMQ's order: shutting down, topic name, topics that are not for sending, topic and
        queue, then the records. Permissions are not among them, but for ordered topics the broker's own: clients
        obey the route (SendMessageProcessor; only send-backs check).

        Gives the answer and the log offset after the last record, for whoever waits for the disk. All queues
        are checked before the first record is stored; topics that did not exist are made even when a later
        check refuses the run.
        """
        if self._closed:
            raise DejamqError("the broker is shutting down; send to another one", code=Code.SERVICE_NOT_AVAILABLE)
        self.require_master()
        plain = self._known().issuperset(run.queues)
        if not plain and any(queue_id < 0 for _, queue_id in run.queues):
            chosen, queue_ids = placed(run, lambda topic: self._topic(topic, run.default_queue_nums))
            result, end = self._store_run(chosen, born_host)
            result.queue_ids = queue_ids
            return result, end
        plain = plain or self._check_queues(run)
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

    def _known(self) -> set[Key]:
        """Queues that the checks of a run have nothing against as the topics are now, and that are no retries'.

        A run may name hundreds, and to look at each was a tenth of what the broker did for such a run.
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
        """None, with nothing stored: it is no run of a few good records, or none that the log's file has room for."""
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
        """Records with a delay or a transaction, and retries that a consumer sends itself, are re-encoded one by one.

        Rewriting all of them first means that a record that cannot be rewritten refuses the whole run. After
        that only the disk can fail, and then the answer says how many are stored: StoredInPart.
        """
        origin = Origin("client", asker=Asker(run.client_id, run.boot_id, run.seq), group=run.group)
        records = [self._rewritten(parsed, number, born_host) for number in range(len(parsed))]
        stored: list[Appended] = []
        for record in records:
            try:
                is_half = record.topic == names.HALF_TOPIC
                stored.append((self.halves if is_half else self._writer).put(record, origin))
            except DejamqError as error:
                if not stored:
                    raise
                raise StoredInPart(f"only {len(stored)} of {len(records)} records are stored: {error}") from None
        result = self._accepted(run, stored[-1], np.concatenate([each.queue_offsets for each in stored]))
        result.span_starts = np.arange(len(stored), dtype="<u4")
        result.span_log_offsets = np.concatenate([each.log_offsets for each in stored]).astype("<u8")
        return result, stored[-1].end_log_offset

    def _take_reply(self, run: SendRun, parsed: Run, born_host: IntHost) -> tuple[SendRunResult, int]:
        """One reply, handed to the client that asked. A reply that is not stored has place 0, as in RocketMQ."""
        if len(parsed) != 1:
            raise BadRun(1, "a reply is a run of its own")
        origin = Origin("client", asker=Asker(run.client_id, run.boot_id, run.seq), group=run.group)
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
            half = self.halves.made_of(record)
        except BadRecord as error:
            raise BadRun(number, str(error)) from None
        return half or scheduled(self._retries.redirect(record), self._levels)


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

    RocketMQ adds it to every message; here to those that are re-encoded anyway, requests among them: for all
    others it would cost a copy of each record.
    """
    if names.PROPERTY_CLUSTER in decode_properties(raw_properties):
        return raw_properties
    end = b"" if not raw_properties or raw_properties.endswith(b"\x02") else b"\x02"
    return raw_properties + end + f"{names.PROPERTY_CLUSTER}\x01{cluster}\x02".encode()
