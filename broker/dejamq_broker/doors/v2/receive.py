"""Receives and what becomes of messages: handles are the domain's. Source: RocketMQ ``ReceiveMessageActivity``,
``AckMessageActivity``, ``ChangeInvisibleDurationActivity``, ``ForwardMessageToDLQActivity``.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dejamq_proto import failpoints
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import decode
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.v2.methods import Call, Unary, call_of, group_of, topic_of
from dejamq_proto.v2.statuses import OK, StatusError, status_of
from dejamq_proto.v2.times import ms_of, set_ms

from dejamq_broker.base.config import PopSettings
from dejamq_broker.base.streams import Streams
from dejamq_broker.domain import PopParts
from dejamq_broker.doors.v2.messages import message_of
from dejamq_broker.doors.v2.sessions import TYPES, Session, Sessions
from dejamq_broker.pop.handles import Handle
from dejamq_broker.pop.query import POINT_MESSAGES, PopAnswer, Popped, PopQuery
from dejamq_broker.pop.service import LONGEST_INVISIBLE_MS
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable

Context = Any
MOST_HANDLES = 1024
"""Of one call: the event loop has others to serve."""
LEFT_MS = 400
"""So long before a client gives up, it is told that nothing came. Rust's client leaves no time for that itself."""
HANDLES = dict.fromkeys((Code.NO_MESSAGE, Code.MESSAGE_ILLEGAL, Code.TOPIC_NOT_EXIST), pb.INVALID_RECEIPT_HANDLE)
"""With any other status push consumers repeat the call each second, for ever; also for a topic that was deleted."""
AT_ONCE_MS = 0
MOST_BYTES = 3 << 20
"""Of records in one answer, besides a last message: a client's limit is 4 MiB for each message of the stream alone."""


class V2Receiving:
    """Owned by the event loop."""

    def __init__(
        self, popping: PopParts, groups: SubscriptionGroupTable, sessions: Sessions, streams: Streams,
        settings: PopSettings, max_wait_ms: int | None, true_peer: Callable[[str], str], clock_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        """``max_wait_ms`` bounds how long a request may be held; None: clients decide, up to the settings' limit."""
        self._pops, self._held, self._renewals = popping.pops, popping.held, popping.renewals
        self._groups, self._sessions, self._streams = groups, sessions, streams
        self._settings, self._max_wait_ms = settings, max_wait_ms
        self._true_peer, self._clock_ms = true_peer, clock_ms

    def calls(self) -> dict[str, Unary]:
        """By their names."""
        return {
            "AckMessage": self._ack, "ChangeInvisibleDuration": self._change,
            "ForwardMessageToDeadLetterQueue": self._forward,
        }  # fmt: skip

    async def receive(self, raw: bytes, context: Context) -> None:
        """A status, the messages, and the time. What could not be written comes again at once."""
        with self._streams.running():
            try:
                call = call_of(context, self._true_peer(context.peer()))
                request = methods.read(raw, pb.ReceiveMessageRequest)
                session = self._sessions.of(call)
                query = self._query(request, session, call)
                found = await self._found(query, self._wait_ms(request, session, call))
            except DejamqError as error:
                await _write(context, pb.ReceiveMessageResponse(status=status_of(error)))
                return
            if found.batches and failpoints.ARMED and await failpoints.reached("rpc.ReceiveMessage.answer"):
                return  # the messages are the client's, which does not hear of them
            if request.auto_renew:
                for batch in found.batches:
                    self._renewals.keep(query.asker, query.group, query.topic, batch.handles())
            await self._tell(context, request.message_queue.topic, query, found)

    def _query(self, request: pb.ReceiveMessageRequest, session: Session, call: Call) -> PopQuery:
        """The number of the queue is passed over, as in RocketMQ; each broker's queues are one to these clients."""
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        config = self._groups.require(group)
        expression = request.filter_expression
        query = PopQuery(
            asker=session.asker(call), group=group, topic=topic, invisible_ms=self._invisible_ms(request),
            max_messages=min(max(request.batch_size, 1), POINT_MESSAGES), max_bytes=MOST_BYTES,
            expression=expression.expression or "*", expression_type=TYPES.get(expression.type, "TAG"),
            ordered=config.consume_message_orderly, kept=request.auto_renew, attempt_id=request.attempt_id,
        )  # fmt: skip
        try:
            self._pops.begin(query)
        except DejamqError as error:
            if error.code == Code.SYSTEM_ERROR and expression.type == pb.SQL:  # this broker does not filter by SQL92
                raise StatusError(pb.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
            raise
        session.subscribed(topic, expression, self._clock_ms())
        return query

    def _invisible_ms(self, request: pb.ReceiveMessageRequest) -> int:
        if request.auto_renew:
            return self._settings.default_invisible_time_ms
        return invisible_ms_of(request.invisible_duration)

    def _wait_ms(self, request: pb.ReceiveMessageRequest, session: Session, call: Call) -> float:
        """Never longer than the client waits, and not for nothing where it names no time: some would ask again and
        again.
        """
        left_ms = float("inf") if call.left_s is None else call.left_s * 1000
        if request.HasField("long_polling_timeout"):
            wanted_ms: float = ms_of(request.long_polling_timeout, pb.ILLEGAL_POLLING_TIME)
        elif session.poll_ms:
            wanted_ms = session.poll_ms
        else:
            wanted_ms = left_ms - session.request_timeout_ms / 2
        bounds = [wanted_ms, self._settings.max_grpc_polling_time_ms, left_ms - LEFT_MS]
        return max(0.0, min(bounds if self._max_wait_ms is None else [*bounds, self._max_wait_ms]))

    async def _found(self, query: PopQuery, wait_ms: float) -> PopAnswer:
        """A client that goes away while it waits is given nothing."""
        answer = self._pops.pop(query)
        if answer.batches or wait_ms <= 0:
            return answer
        told: asyncio.Future[PopAnswer] = asyncio.get_running_loop().create_future()

        def tell(outcome: PopAnswer | DejamqError) -> None:
            if told.done():
                return
            if isinstance(outcome, DejamqError):
                told.set_exception(outcome)
            else:
                told.set_result(outcome)

        hold = self._held.park(query, wait_ms, tell)
        try:
            return await told
        except asyncio.CancelledError:
            if told.done() and not told.cancelled() and told.exception() is None:
                self._give_back(query, [handle for batch in told.result().batches for handle in batch.handles()])
            raise
        finally:
            self._held.forget(hold)

    async def _tell(self, context: Context, topic: pb.Resource, query: PopQuery, found: PopAnswer) -> None:
        told: set[Handle] = set()
        try:
            status = OK if found.batches else pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no message came")
            await _write(context, pb.ReceiveMessageResponse(status=status))
            for batch in found.batches:
                for handle, message in _messages(batch, topic):
                    await _write(context, pb.ReceiveMessageResponse(message=message))
                    told.add(handle)
            ended = pb.ReceiveMessageResponse()
            set_ms(ended.delivery_timestamp, self._clock_ms())
            await _write(context, ended)
        except BaseException:
            handles = [handle for batch in found.batches for handle in batch.handles()]
            self._give_back(query, [handle for handle in handles if handle not in told])
            raise

    def _give_back(self, query: PopQuery, handles: list[Handle]) -> None:
        for handle in handles:
            now = self._renewals.ended(query.group, query.topic, handle)
            try:
                self._pops.change(query.group, query.topic, now, AT_ONCE_MS, query.asker)
            except DejamqError:
                return  # it comes when its time is over

    async def _ack(self, request: pb.AckMessageRequest, call: Call) -> pb.AckMessageResponse:
        with self._streams.running():
            group, topic, asker = self._named(request.group, request.topic, call)
            if not 0 < len(request.entries) <= MOST_HANDLES:
                text = f"a call acknowledges 1 to {MOST_HANDLES} messages, not {len(request.entries)}"
                raise StatusError(pb.BAD_REQUEST, text)
            statuses = [OK] * len(request.entries)
            handles: dict[int, Handle] = {}
            for number, entry in enumerate(request.entries):
                try:
                    handles[number] = self._renewals.ended(group, topic, Handle.read(entry.receipt_handle))
                except DejamqError as error:
                    statuses[number] = status_of(error, HANDLES)
            outcomes = self._acked(group, topic, tuple(handles.values()), asker)
            for number, outcome in zip(handles, outcomes, strict=True):
                if outcome is not None:
                    statuses[number] = status_of(outcome, HANDLES)
            entries = [
                pb.AckMessageResultEntry(message_id=each.message_id, receipt_handle=each.receipt_handle, status=status)
                for each, status in zip(request.entries, statuses, strict=True)
            ]
            return pb.AckMessageResponse(status=_together(statuses), entries=entries)

    def _acked(self, group: str, topic: str, handles: tuple[Handle, ...], asker: Asker) -> Sequence[DejamqError | None]:
        """The outcome of each. Raises what the store raises."""
        try:
            return self._pops.ack(group, topic, handles, asker)
        except DejamqError as error:
            if error.code != Code.TOPIC_NOT_EXIST:
                raise
            return [error] * len(handles)

    async def _change(
        self, request: pb.ChangeInvisibleDurationRequest, call: Call
    ) -> pb.ChangeInvisibleDurationResponse:
        with self._streams.running():
            group, topic, asker = self._named(request.group, request.topic, call)
            invisible_ms = invisible_ms_of(request.invisible_duration)
            try:
                handle = self._renewals.ended(group, topic, Handle.read(request.receipt_handle))
                changed = self._pops.change(group, topic, handle, invisible_ms, asker)
            except DejamqError as error:
                return pb.ChangeInvisibleDurationResponse(status=status_of(error, HANDLES))
            return pb.ChangeInvisibleDurationResponse(status=OK, receipt_handle=str(changed))

    async def _forward(
        self, request: pb.ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> pb.ForwardMessageToDeadLetterQueueResponse:
        """By consumers in order, whose own tries are used up."""
        with self._streams.running():
            group, topic, _ = self._named(request.group, request.topic, call)
            try:
                handle = self._renewals.ended(group, topic, Handle.read(request.receipt_handle))
                self._pops.bury(group, topic, handle)
            except DejamqError as error:
                return pb.ForwardMessageToDeadLetterQueueResponse(status=status_of(error, HANDLES))
            return pb.ForwardMessageToDeadLetterQueueResponse(status=OK)

    def _named(self, group: pb.Resource, topic: pb.Resource, call: Call) -> tuple[str, str, Any]:
        return group_of(group), topic_of(topic), self._sessions.of(call).asker(call)


def invisible_ms_of(duration: Any) -> int:
    """Raises ILLEGAL_INVISIBLE_TIME. RocketMQ refuses less than 10 s at a receive; here any time from 0 on is taken."""
    invisible_ms = ms_of(duration, pb.ILLEGAL_INVISIBLE_TIME)
    if invisible_ms > LONGEST_INVISIBLE_MS:
        text = f"messages are invisible for 0 to {LONGEST_INVISIBLE_MS} ms, not {invisible_ms}"
        raise StatusError(pb.ILLEGAL_INVISIBLE_TIME, text)
    return invisible_ms


def _messages(batch: Popped, topic: pb.Resource) -> Iterator[tuple[Handle, pb.Message]]:
    """In the order of the queue, with the deliveries before this one counted."""
    at, counts = 0, batch.counts or [None] * len(batch.sizes)
    for handle, size, count in zip(batch.handles(), batch.sizes, counts, strict=True):
        record = decode(batch.records, at, check_crc=False)
        attempt = 1 + (record.reconsume_times if count is None else count)
        yield handle, message_of(record, topic, attempt=attempt, handle=str(handle))
        at += size


def _together(statuses: list[pb.Status]) -> pb.Status:
    """One that all have, else MULTIPLE_RESULTS."""
    codes = {status.code for status in statuses}
    return statuses[0] if len(codes) == 1 else pb.Status(code=pb.MULTIPLE_RESULTS, message="some were refused")


async def _write(context: Context, answer: pb.ReceiveMessageResponse) -> None:
    await context.write(answer.SerializeToString())
