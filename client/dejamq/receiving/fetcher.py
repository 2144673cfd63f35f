"""Pulls one queue's messages, one request at a time, for as long as the queue is owned.

Source: RocketMQ ``PullMessageService``, ``DefaultMQPushConsumerImpl.pullMessage``.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from dejamq_proto import failpoints
from dejamq_proto.codes import Code, DejamqError, SendTimeout, error_for
from dejamq_proto.names import MASTER_ID
from dejamq_proto.pull_pb2 import PullRequest
from dejamq_proto.records.record import BadRecord
from dejamq_proto.records.run import BadRun
from dejamq_proto.wire.messages import OFFSET_RESET, PullAnswer

from dejamq.net.waits import set_within
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.context import ConsumerContext
from dejamq.receiving.counts import QueueCounts
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.flow import Thresholds
from dejamq.receiving.hooks import Filters
from dejamq.receiving.memory_budget import Room
from dejamq.receiving.offset_store import OffsetStore
from dejamq.receiving.process_queue import FlowLimits
from dejamq.receiving.received import ReceivedMessage, receive
from dejamq.values.message import MessageQueue
from dejamq.values.namespace import unwrap, unwrap_queue

log = logging.getLogger("dejamq.clients.consumer")

BROKER_FLOW_CONTROL_MS = 20
HANDLED_FIRST = 64
"""So few messages are handled before the next pull is asked: to ask takes longer than handlers that do not work."""
Submit = Callable[[OwnedQueue, list[ReceivedMessage]], None]


class Moves(Protocol):
    """The next step for a queue in which the group goes on at another offset."""

    def moved(self, owned: OwnedQueue, offset: int) -> None:
        """The broker corrected the queue's offset to this one."""

    def reset(self, owned: OwnedQueue, offset: int) -> None:
        """An operator moved the group in this queue to this offset."""


class GivingUp:
    """The queue gives itself up, and a round opens it anew; push consumers do so."""

    def __init__(self, on_illegal: Callable[[], None]) -> None:
        """``on_illegal`` is called when a queue gave itself up."""
        self._on_illegal = on_illegal

    def moved(self, owned: OwnedQueue, offset: int) -> None:
        """Our offset is outside the queue: what is held is dropped, and the next round begins where the broker says."""
        name, queue_id, before = owned.queue.broker_name, owned.queue.queue_id, owned.next_offset
        text = "offset_corrected queue=%s:%d from=%d to=%d why=%s"
        log.warning(text, name, queue_id, before, offset, owned.correction)
        owned.corrected_offset, owned.process_queue.dropped = offset, True
        self._on_illegal()

    def reset(self, owned: OwnedQueue, offset: int) -> None:
        """As after a correction, whichever way it goes: what is held counts for nothing, and comes again where it lies
        behind (RocketMQ: OFFSET_RESET is handled as an illegal offset).
        """
        owned.correction = "reset"
        self.moved(owned, offset)


class Fetcher:
    """The shared part of one consumer's fetch loops. ``run`` is the task of one owned queue."""

    def __init__(
        self, context: ConsumerContext, deliveries: Deliveries, offsets: OffsetStore, submit: Submit, *,
        moves: Moves, cached_bytes: Callable[[], int], queue_count: Callable[[], int],
        counts: Callable[[MessageQueue], QueueCounts], filters: Filters,
        locked: Callable[[OwnedQueue], bool] | None = None, lite: bool = False,
    ) -> None:  # fmt: skip
        """``cached_bytes``: bodies held in all queues of the client. ``queue_count``: how many are assigned to it.
        ``counts``: where the statistics of a queue are counted.

        With ``locked``, for consumption in order, only queues that are locked are pulled, and it does not matter how
        far unfinished messages are apart. ``lite``: pulls are those of a lite pull consumer: brokers may refuse them,
        and they always bring their filter.
        """
        self._context, self._deliveries, self._offsets, self._submit = context, deliveries, offsets, submit
        self._moves, self.cached_bytes, self.queue_count, self._counts = moves, cached_bytes, queue_count, counts
        self.filters, self._locked, self._lite = filters, locked, lite
        config = context.config
        self._thresholds = Thresholds(config, in_order=locked is not None)
        self._interval_s = config.pull_interval_ms / 1000
        self._pause_s = config.pull_time_delay_when_exception_ms / 1000
        self._timeout_s = config.consumer_timeout_when_suspend_ms / 1000
        self._look_s, pull_bytes = config.flow_control_interval_ms / 1000, config.pull_batch_size_in_bytes
        self._room = Room(config.max_cached_bytes, lambda: self.cached_bytes(), pull_bytes, self._look_s)
        self._resumed = asyncio.Event()
        self._resumed.set()

    def suspend(self) -> None:
        """Pull no more until ``resume``; a request under way still brings its messages."""
        self._resumed.clear()

    def resume(self) -> None:
        """Pull again."""
        self._resumed.set()

    async def run(self, owned: OwnedQueue) -> None:
        """Pull until the queue is dropped or the task cancelled. Failures of brokers are waited out.

        One request at a time for each queue, so messages reach the process queue in the order of the queue. A
        failure is waited out for ``pull_time_delay_when_exception_ms``, one of a broker that is overloaded for
        20 ms.
        """
        failing = False
        owned.counts = self._counts(owned.queue)
        while not owned.dropped:
            if 0 < len(owned.came) < HANDLED_FIRST:
                self._hand_over(owned)
                await asyncio.sleep(0)
                continue  # whatever happened meanwhile, the queue may be lost
            owned.last_pull_s = self._context.age_s()
            if not await self._may_pull(owned):
                continue
            if failpoints.ARMED:
                self._hand_over(owned)
                await failpoints.reached("consumer.pull")
            try:
                found = await self._next(owned)
            except (DejamqError, BadRun, BadRecord) as error:
                queue = owned.queue
                level = logging.DEBUG if failing else logging.WARNING  # once for each outage
                log.log(level, "pull_failed queue=%s:%d reason=%s", queue.broker_name, queue.queue_id, error)
                failing, owned.replica = True, MASTER_ID
                await asyncio.sleep(self._pause_after(error))
            else:
                failing = False
                if found and self._interval_s:
                    self._hand_over(owned)
                    await asyncio.sleep(self._interval_s)

    async def _next(self, owned: OwnedQueue) -> bool:
        """Whether messages came. Nothing else keeps the answer's bytes: it may be long until the queue has another."""
        broker, has_more = (owned.queue.broker_name, owned.replica), owned.has_more(self._context.age_s())
        with self._room.asked(broker, has_more):
            answer, asked = await self._pull(owned), owned.next_offset
            found, owned.replica = self._take(owned, answer), answer.suggest_broker_id
        if answer.next_offset == asked and self._sent_in_vain(owned, answer):
            await asyncio.sleep(self._pause_s)
        return found

    async def _may_pull(self, owned: OwnedQueue) -> bool:
        """False after a wait: then everything must be looked at again."""
        if not self._resumed.is_set():
            self._hand_over(owned)
            await set_within(self._resumed, self._pause_s)  # wakes in between, so that the queue does not look idle
            return False
        if self._locked is not None and not self._locked(owned):
            self._hand_over(owned)
            await asyncio.sleep(self._pause_s)
            return False
        excess = owned.process_queue.excess(self._limits())
        if not excess and self._room.is_free:
            return True
        self._hand_over(owned)
        log.debug("flow_control queue=%s:%d %s", owned.queue.broker_name, owned.queue.queue_id, excess)
        if excess:
            await self._own_room(owned)
            return False
        await self._turn(owned)
        if owned.dropped or not self._resumed.is_set():  # any of it may be new
            return False
        if self._locked is not None and not self._locked(owned):
            return False
        return not owned.process_queue.excess(self._limits())

    async def _turn(self, owned: OwnedQueue) -> None:
        """However long it takes: a queue in line does not look idle."""
        owned.in_line = True
        try:
            await self._room.turn()
        finally:
            owned.in_line, owned.last_pull_s = False, self._context.age_s()

    def _limits(self) -> FlowLimits:
        return self._thresholds.limits(self.queue_count())

    async def _own_room(self, owned: OwnedQueue) -> None:
        """Until a finished message makes room here; wakes in between, so that the queue does not look idle."""
        room, held = asyncio.Event(), owned.process_queue
        limits = self._limits()

        def look() -> None:
            if not held.excess(limits):
                held.on_room = None
                room.set()

        if held.excess(limits):
            held.on_room = look
        try:
            # lite pull counts the held messages of all queues together, and this queue does not know that number
            await set_within(room, self._look_s if self._lite else self._pause_s)
        finally:
            held.on_room = None

    async def _pull(self, owned: OwnedQueue) -> PullAnswer:
        """The last pull's messages go to their handlers after this pull was asked. Handlers keep the event loop busy
        for a while, and the answer comes meanwhile.
        """
        try:
            answer = asyncio.ensure_future(self._ask(owned))
        finally:
            self._hand_over(owned)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._timeout_s, answer.cancel)  # asyncio.timeout costs 5 times it
        try:
            return await answer
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SendTimeout(f"{owned.queue.broker_name} did not answer a pull in time") from None
        finally:
            timer.cancel()

    def _ask(self, owned: OwnedQueue) -> Awaitable[PullAnswer]:
        """The commit travels with the pull (RocketMQ: PullSysFlag's commitOffset bit), so that a busy queue's
        progress is known to the broker long before the timer's turn.
        """
        link, owned.read_from = self._context.reading(owned.queue.broker_name, owned.replica)
        seq, request = self._context.next_seq(), PullRequest()
        request.CopyFrom(self._asking(owned))
        request.caller.seq, request.queue_offset = seq, owned.next_offset
        commit_offset = self._commit_along(owned, seq)
        if commit_offset is not None:
            request.commit_offset = commit_offset
        return link.pull(request)

    def _asking(self, owned: OwnedQueue) -> PullRequest:
        """The common part of all pulls of the queue, while it has this subscription."""
        asking, config, queue = owned.asking, self._context.config, owned.queue
        if asking is None or asking.subscription_version != owned.subscription_version:
            asking = owned.asking = PullRequest(
                caller=self._context.caller(0), group=self._context.group, topic=queue.topic, queue_id=queue.queue_id,
                max_messages=config.pull_batch_size, max_bytes=config.pull_batch_size_in_bytes,
                suspend_ms=config.broker_suspend_max_time_ms, expression=owned.expression,
                subscription_version=owned.subscription_version, expression_type=owned.expression_type,
                registered=not (self._lite or config.post_subscription_when_pull), lite=self._lite,
            )  # fmt: skip
        return asking

    def _commit_along(self, owned: OwnedQueue, seq: int) -> int | None:
        """Nothing to a slave, as in RocketMQ: while the master is there, its offsets are the ones that count."""
        return self._offsets.piggyback(owned, seq) if owned.read_from == MASTER_ID else None

    def _sent_in_vain(self, owned: OwnedQueue, answer: PullAnswer) -> bool:
        """A slave knows of the master and would have it asked, and the routes here do not have it yet."""
        if owned.read_from == MASTER_ID or answer.code != Code.PULL_RETRY_IMMEDIATELY:
            return False
        return self._context.reading(owned.queue.broker_name, owned.replica)[1] == owned.read_from

    def _take(self, owned: OwnedQueue, answer: PullAnswer) -> bool:
        """Whether there were messages. RocketMQ: PullCallback in DefaultMQPushConsumerImpl.pullMessage.

        Nothing found still moves the offset: what was filtered out need not be looked at again, and with
        nothing unfinished it may be committed.
        """
        if owned.dropped:
            return False
        if answer.code == Code.PULL_OFFSET_MOVED:
            move = self._moves.reset if answer.remark == OFFSET_RESET else self._moves.moved
            move(owned, answer.next_offset)
            return False
        if answer.code == Code.SUCCESS:
            self._found(owned, answer)
            owned.counts.found(len(answer.sizes), self._context.age_s() - owned.last_pull_s)
        elif answer.code not in (Code.PULL_NOT_FOUND, Code.PULL_RETRY_IMMEDIATELY):
            raise error_for(answer.code, answer.remark)
        owned.next_offset, owned.max_offset = answer.next_offset, answer.max_offset
        owned.told_s = self._context.age_s()
        owned.process_queue.advance(answer.next_offset)
        return answer.code == Code.SUCCESS

    def _found(self, owned: OwnedQueue, answer: PullAnswer) -> None:
        """The broker filtered by the tags' hash; equal hashes of other tags are sorted out here."""
        namespace = self._context.config.namespace
        batch, messages = receive(answer, unwrap_queue(namespace, owned.queue), self._context.boot_id)
        batch.namespace, batch.group = namespace, unwrap(namespace, self._context.group)
        offsets, sizes = batch.column("queue_offset"), batch.body_sizes
        if owned.tags or self.filters:
            tags, keeps = owned.tags, self.filters.keeps
            messages = [one for one in messages if (not tags or one.tags in tags) and keeps(one)]
            offsets, sizes = [one.queue_offset for one in messages], [sizes[one._index] for one in messages]
        if messages:
            owned.process_queue.put(offsets, sizes)
            self._room.came(sum(sizes))
            self._deliveries.handed_out(owned, messages)
            owned.came = messages

    def _hand_over(self, owned: OwnedQueue) -> None:
        """Give the messages of the last pull to the handlers."""
        if owned.came:
            messages, owned.came = owned.came, []
            self._submit(owned, messages)

    def _pause_after(self, error: Exception) -> float:
        if isinstance(error, DejamqError) and error.code == Code.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_MS / 1000
        return self._pause_s
