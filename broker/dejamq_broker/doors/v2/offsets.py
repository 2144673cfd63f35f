"""Pulls by offset, and offsets. No official client calls these today; RocketMQ's proxy 5.3 answers none of them."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import decode_each
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2 import methods
from dejamq_proto.v2.methods import Call, Unary, call_of, group_of, topic_of
from dejamq_proto.v2.statuses import OK, StatusError, status_of
from dejamq_proto.v2.times import ms_of
from dejamq_proto.wire.messages import PullAnswer

from dejamq_broker.base.streams import Streams
from dejamq_broker.doors.v2.messages import message_of
from dejamq_broker.doors.v2.sessions import TYPES, Sessions
from dejamq_broker.paths.commits import Commits
from dejamq_broker.paths.long_poll import HeldRequest, LongPoll
from dejamq_broker.paths.pull import Puller
from dejamq_broker.paths.rules import PullQuery
from dejamq_broker.tables.offsets import OffsetTable, Position
from dejamq_broker.tables.topics import TopicTable, check_queue

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

Context = Any
MOST_MESSAGES = 32


class V2Offsets:
    """Owned by the event loop."""

    def __init__(
        self, store: "MessageStore", topics: TopicTable, offsets: OffsetTable, commits: Commits, puller: Puller,
        long_poll: LongPoll, sessions: Sessions, streams: Streams, max_wait_ms: int, true_peer: Callable[[str], str],
    ) -> None:  # fmt: skip
        self._store, self._topics, self._offsets, self._commits = store, topics, offsets, commits
        self._puller, self._long_poll, self._sessions, self._streams = puller, long_poll, sessions, streams
        self._max_wait_ms, self._true_peer = max_wait_ms, true_peer

    def calls(self) -> dict[str, Unary]:
        """By their names."""
        return {"UpdateOffset": self._update, "GetOffset": self._get, "QueryOffset": self._query}

    async def pull(self, raw: bytes, context: Context) -> None:
        """A status, the messages, and where to go on."""
        with self._streams.running():
            try:
                call = call_of(context, self._true_peer(context.peer()))
                request = methods.read(raw, pb.PullMessageRequest)
                found = await self._looked(self._pull_query(request, call))
                code = Code(found.code)
                if code not in (Code.SUCCESS, Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY):
                    status = pb.ILLEGAL_OFFSET if code is Code.PULL_OFFSET_MOVED else pb.INTERNAL_SERVER_ERROR
                    raise StatusError(status, f"{found.remark}; go on at {found.next_offset}")
            except DejamqError as error:
                await context.write(pb.PullMessageResponse(status=status_of(error)).SerializeToString())
                return
            empty = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no message came")
            answers = [pb.PullMessageResponse(status=OK if found.records else empty)]
            for record in decode_each(b"".join(found.records)):
                message = message_of(record, request.message_queue.topic, attempt=1 + record.reconsume_times)
                answers.append(pb.PullMessageResponse(message=message))
            answers.append(pb.PullMessageResponse(next_offset=found.next_offset))
            for answer in answers:
                await context.write(answer.SerializeToString())

    def _pull_query(self, request: pb.PullMessageRequest, call: Call) -> PullQuery:
        expression = request.filter_expression
        return PullQuery(
            asker=self._sessions.of(call).asker(call), group=group_of(request.group),
            topic=topic_of(request.message_queue.topic), queue_id=request.message_queue.id,
            queue_offset=request.offset, max_messages=min(max(request.batch_size, 1), MOST_MESSAGES),
            suspend_ms=min(ms_of(request.long_polling_timeout, pb.ILLEGAL_POLLING_TIME), self._max_wait_ms),
            expression=expression.expression or "*", expression_type=TYPES.get(expression.type, "TAG"),
        )  # fmt: skip

    async def _looked(self, pull: PullQuery) -> PullAnswer:
        """The answer, at the latest when its time is over."""
        self._puller.begin(pull, self._long_poll.now_ms(), self._max_wait_ms)
        found = self._puller.look(pull, first=True, last=self._long_poll.full)
        owner = object()
        try:
            while found is None:
                woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
                key = pull.topic, pull.queue_id
                self._long_poll.park(HeldRequest(key, pull.deadline_ms, _setter(woken), owner))
                found = self._puller.look(pull, first=False, last=await woken)
        finally:
            self._long_poll.forget(owner)
        return found

    async def _update(self, request: pb.UpdateOffsetRequest, call: Call) -> pb.UpdateOffsetResponse:
        at = Position(group_of(request.group), *self._queue(request.message_queue))
        if request.offset < 0:
            raise StatusError(pb.ILLEGAL_OFFSET, f"{request.offset} is no offset")
        self._commits.commit(at, request.offset, "sync", self._sessions.of(call).asker(call))
        return pb.UpdateOffsetResponse(status=OK)

    async def _get(self, request: pb.GetOffsetRequest, _: Call) -> pb.GetOffsetResponse:
        at = Position(group_of(request.group), *self._queue(request.message_queue))
        offset = self._offsets.get(at)
        if offset is None:
            raise StatusError(pb.OFFSET_NOT_FOUND, f"group {at.group!r} has no offset there")
        return pb.GetOffsetResponse(status=OK, offset=offset)

    async def _query(self, request: pb.QueryOffsetRequest, _: Call) -> pb.QueryOffsetResponse:
        topic, queue_id = self._queue(request.message_queue)
        if request.query_offset_policy == pb.TIMESTAMP:
            offset = self._store.search_offset(topic, queue_id, ms_of(request.timestamp))
        elif request.query_offset_policy == pb.END:
            offset = self._store.max_offset(topic, queue_id)
        else:
            offset = self._store.min_offset(topic, queue_id)
        return pb.QueryOffsetResponse(status=OK, offset=offset)

    def _queue(self, queue: pb.MessageQueue) -> tuple[str, int]:
        """Raises TOPIC_NOT_FOUND, and BAD_REQUEST for a queue that the topic has not."""
        topic = topic_of(queue.topic)
        check_queue(self._topics.require(topic), queue.id)
        return topic, queue.id


def _setter(woken: "asyncio.Future[bool]") -> Callable[[bool], None]:
    def wake(timed_out: bool) -> None:
        if not woken.done():
            woken.set_result(timed_out)

    return wake
