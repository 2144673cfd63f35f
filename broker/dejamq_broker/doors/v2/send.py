"""Sends and ends of transactions: messages become runs of records. Source: RocketMQ ``SendMessageActivity``,
``EndTransactionActivity``, ``RecallMessageActivity``.
"""

import itertools
from collections.abc import Awaitable, Callable

import numpy as np
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import (
    SYS_COMPRESSED,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_ROLLBACK,
    BadRecord,
    Outgoing,
    decode,
    encode_properties,
    java_hash,
    tags_code,
)
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import Call, Unary, topic_of
from dejamq_proto.v2.statuses import OK, StatusError, status_of
from dejamq_proto.wire.messages import SendRun, SendRunResult

from dejamq_broker.base.identity import Site, peer_host
from dejamq_broker.base.streams import Streams
from dejamq_broker.deferred.transactions.check import CheckProducer
from dejamq_broker.deferred.transactions.service import UNKNOWN, Transactions
from dejamq_broker.doors.v2.messages import SentMessage, message_of, sent_of
from dejamq_broker.doors.v2.sessions import Sessions
from dejamq_broker.paths.confirmation import Confirmation
from dejamq_broker.paths.send import SendPath
from dejamq_broker.tables.topics import TopicConfig, TopicTable
from dejamq_broker.timer.recall import Recalls
from dejamq_broker.writing.fast_failure import FastFailure

MOST_MESSAGES, MOST_BYTES = 1024, 8 << 20
"""Of one call. A single message has the limit of its topic's broker (maxMessageSize), if that is more."""
STORED = {
    Code.FLUSH_DISK_TIMEOUT: pb.MASTER_PERSISTENCE_TIMEOUT, Code.FLUSH_SLAVE_TIMEOUT: pb.SLAVE_PERSISTENCE_TIMEOUT,
    Code.SLAVE_NOT_AVAILABLE: pb.HA_NOT_AVAILABLE,
}  # fmt: skip
"""Stored, and not as safe as asked for: clients take it for a failure and send again (cause P3), as with RocketMQ."""
RECALLS = {Code.NO_PERMISSION: pb.INTERNAL_SERVER_ERROR}
"""Where recalls are off. RocketMQ's proxy has no status of its own for that."""
STORED_BEFORE = "stored before"
"""Of a message whose id is known; the protocol has no place for that."""
STATES = {pb.COMMIT: SYS_TRANSACTION_COMMIT, pb.ROLLBACK: SYS_TRANSACTION_ROLLBACK}
HASH_STEP, WORD = 2_862_933_555_777_941_757, (1 << 64) - 1


class V2Sending:
    """Owned by the event loop."""

    def __init__(
        self, sender: SendPath, confirmation: Confirmation, transactions: Transactions, topics: TopicTable,
        sessions: Sessions, streams: Streams, fast: FastFailure, site: Site, most_body: int,
        clock_ms: Callable[[], int], told: Callable[[], Awaitable[None]], recalls: Recalls,
    ) -> None:  # fmt: skip
        """``told`` waits until name servers know the topics as they are now."""
        self._recalls = recalls
        self._sender, self._confirmation, self._transactions = sender, confirmation, transactions
        self._topics, self._sessions, self._streams, self._fast = topics, sessions, streams, fast
        self._site, self._most_body, self._clock_ms, self._told = site, most_body, clock_ms, told
        self._turns = itertools.count()

    def calls(self) -> dict[str, Unary]:
        """By their names."""
        return {"SendMessage": self._send, "EndTransaction": self._end, "RecallMessage": self._recall}

    async def _send(self, request: pb.SendMessageRequest, call: Call) -> pb.SendMessageResponse:
        """All messages go to one queue, which the broker chooses: clients hash message groups each in its own way."""
        with self._streams.running():
            session = self._sessions.of(call)
            topic, messages = self._checked(request, call)
            self._fast.check_room()
            self._sender.require_master()
            before = self._topics.version
            config = self._topics.for_sending(topic, 0)
            run = self._run_of(messages, topic, self._queue(config, messages[0].message_group))
            run.client_id, run.boot_id, run.seq = session.asker(call)
            outcome = self._sender.accept(run, peer_host(call.peer))
            result = await self._confirmation.of(outcome)
            if self._topics.version is not before:
                await self._told()
            return self._answer(topic, messages, result)

    def _checked(self, request: pb.SendMessageRequest, call: Call) -> tuple[str, list[SentMessage]]:
        if not 0 < len(request.messages) <= MOST_MESSAGES:
            text = f"a call sends 1 to {MOST_MESSAGES} messages, not {len(request.messages)}"
            raise StatusError(pb.MESSAGE_CORRUPTED, text)
        size, most = sum(len(message.body) for message in request.messages), max(MOST_BYTES, self._most_body)
        if size > most:
            text = f"the messages of the call have {size} bytes, at most {most} are taken"
            raise StatusError(pb.MESSAGE_BODY_TOO_LARGE, text)
        topic = topic_of(request.messages[0].topic)
        if any(message.topic.name != topic for message in request.messages):
            raise StatusError(pb.MESSAGE_CORRUPTED, "the messages of one call have one topic")
        try:
            messages = [sent_of(message, topic, self._most_body) for message in request.messages]
        except StatusError as refused:
            if refused.status == pb.MESSAGE_BODY_EMPTY and call.language == "RUST":  # it knows no such status, and ends
                raise StatusError(pb.MESSAGE_CORRUPTED, str(refused)) from None
            raise
        first = messages[0]
        if any((each.type, each.message_group) != (first.type, first.message_group) for each in messages):
            text = "the messages of one call are of one type and one group"
            raise StatusError(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)
        return topic, messages

    def _queue(self, config: TopicConfig, message_group: str) -> int:
        if not config.perm & names.PERM_WRITE or config.write_queue_nums <= 0:
            raise StatusError(
                pb.FORBIDDEN, f"topic {config.topic_name!r} may not be written (permission {config.perm})"
            )
        if message_group:
            return bucket_of(java_hash(message_group), config.write_queue_nums)
        return next(self._turns) % config.write_queue_nums

    def _run_of(self, messages: list[SentMessage], topic: str, queue_id: int) -> SendRun:
        records = [self._record(each, topic, queue_id) for each in messages]
        return SendRun(
            group=topic, queues=[(topic, queue_id)], sizes=np.array(list(map(len, records)), "<u4"),
            tags_codes=np.array([tags_code(each.properties.get(names.PROPERTY_TAGS)) for each in messages], "<i4"),
            dedup=self._sender.knows_repeats
            and any(name in each.properties for each in messages for name in names.DEDUP_PROPERTIES),
            rewrite=any(each.type == pb.TRANSACTION or each.deliver_ms for each in messages),
            records=(b"".join(records),),
        )  # fmt: skip

    def _record(self, message: SentMessage, topic: str, queue_id: int) -> bytes:
        """With the properties that RocketMQ's broker gives each message."""
        timing = {names.PROPERTY_TIMER_DELIVER: str(message.deliver_ms)} if message.deliver_ms else {}
        properties = message.properties | timing | {
            names.PROPERTY_CLUSTER: self._site.cluster, "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
        }  # fmt: skip
        try:
            form = Outgoing.to(topic, sys_flag=SYS_COMPRESSED if message.packed else 0)
        except BadRecord as error:
            raise StatusError(pb.ILLEGAL_TOPIC, str(error)) from None
        return form.encode(queue_id, message.born_ms, message.body, encode_properties(properties))

    async def _end(self, request: pb.EndTransactionRequest, call: Call) -> pb.EndTransactionResponse:
        """The topic stands for the producer's group, as in RocketMQ's proxy."""
        with self._streams.running():
            topic, asker = topic_of(request.topic), self._sessions.of(call).asker(call)
            if not request.transaction_id.strip():
                raise StatusError(pb.INVALID_TRANSACTION_ID, "the call names its transaction")
            state = STATES.get(request.resolution, UNKNOWN)
            from_check = request.source == pb.SOURCE_SERVER_CHECK
            self._transactions.end_by_key(topic, topic, request.transaction_id, state, asker, from_check=from_check)
            return pb.EndTransactionResponse(status=OK)

    async def _recall(self, request: pb.RecallMessageRequest, call: Call) -> pb.RecallMessageResponse:
        with self._streams.running():
            topic, asker = topic_of(request.topic), self._sessions.of(call).asker(call)
            try:
                own_id = self._recalls.recall(topic, request.recall_handle, topic, asker, peer_host(call.peer))
            except DejamqError as error:
                return pb.RecallMessageResponse(status=status_of(error, RECALLS))
            return pb.RecallMessageResponse(status=OK, message_id=own_id)

    def _answer(self, topic: str, messages: list[SentMessage], result: SendRunResult) -> pb.SendMessageResponse:
        """Raises what refused the run."""
        status = OK
        if result.code:
            code = Code(result.code)
            if code is Code.MESSAGE_ILLEGAL and any(each.deliver_ms for each in messages):
                raise StatusError(pb.ILLEGAL_DELIVERY_TIME, result.remark)
            if code not in STORED:
                raise DejamqError(result.remark, code=code)
            status = pb.Status(code=STORED[code], message=result.remark)
        repeats, repeated = set(result.duplicates.tolist()), pb.Status(code=status.code, message=STORED_BEFORE)
        outs_ms = result.timer_out_ms.tolist() or [0] * len(messages)
        entries = [
            pb.SendResultEntry(
                status=repeated if number in repeats else status, message_id=each.message_id,
                transaction_id=each.message_id, offset=int(offset),
                recall_handle=self._recalls.handle_of(topic, out_ms, each.message_id) if out_ms else "",
            )
            for number, (each, offset, out_ms) in enumerate(
                zip(messages, result.queue_offsets.tolist(), outs_ms, strict=True)
            )
        ]  # fmt: skip
        return pb.SendMessageResponse(status=status, entries=entries)


def bucket_of(key: int, buckets: int) -> int:
    """The queue of a message group. More queues move few groups. Source: Guava ``Hashing.consistentHash``."""
    state, candidate = key & WORD, 0
    while True:
        state = (HASH_STEP * state + 1) & WORD
        following = int((candidate + 1) / (((state >> 33) + 1) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


def check_of(command: CheckProducer) -> pb.TelemetryCommand:
    """The question how a transaction ended, for a producer."""
    half = decode(command.record, check_crc=False)
    message = message_of(half, pb.Resource(name=half.topic), attempt=1)
    key = half.properties.get(names.PROPERTY_TRANSACTION_ID) or message.system_properties.message_id
    return pb.TelemetryCommand(
        status=OK,
        recover_orphaned_transaction_command=pb.RecoverOrphanedTransactionCommand(message=message, transaction_id=key),
    )
