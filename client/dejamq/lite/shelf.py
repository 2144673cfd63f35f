"""Messages between pull and poll: what waits, what the program has in hand, and what may be committed. No clock.

A message is *in hand* from the poll that returned it to the next one, which says that the program is done with it. So
the low-water mark of a process queue is what RocketMQ calls consumeOffset at the moment of a commit, and what is in
hand still counts for the limits of pulling. Source: RocketMQ ``AssignedMessageQueue``, ``DefaultLitePullConsumerImpl``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.process_queue import FlowLimits, ProcessQueue
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue


class PolledQueue(ProcessQueue):
    """One owned queue's messages, in the order of the queue. The program says what to commit; it is not computed."""

    __slots__ = ("_at", "_excess", "_runs", "acknowledged", "committed")

    def __init__(self, start_offset: int, excess: Callable[[], str]) -> None:
        """``excess`` says why the queue may not be pulled besides its own limits."""
        super().__init__(start_offset)
        self._excess = excess
        self._runs: deque[list[ReceivedMessage]] = deque()
        self._at = 0  # how much of the first run was handed out
        self.committed: int | None = None
        """RocketMQ's offset store in memory: what the timer sends, and what is sent when the queue is given up."""
        self.acknowledged: int | None = None
        """What the broker last confirmed to this owner."""

    @property
    def position(self) -> int | None:
        """After what the program is done with; None while nothing is known beyond the start."""
        return super().commit_offset

    @property
    def commit_offset(self) -> int | None:
        """The offset that the program or the automatic commit committed; None before."""
        return self.committed

    @property
    def waiting(self) -> bool:
        """Whether a poll would find something."""
        return bool(self._runs)

    def excess(self, limits: FlowLimits) -> str:
        """As the base, and for all queues together."""
        return super().excess(limits) or self._excess()

    def hold(self, messages: list[ReceivedMessage]) -> None:
        """Messages that ``put`` counted."""
        self._runs.append(messages)

    def take(self, limit: int) -> list[ReceivedMessage]:
        """The next messages, at most ``limit`` and of one pull; they stay unfinished. Raises IndexError for none."""
        run, at = self._runs[0], self._at
        messages = run[at : at + limit]
        if at + len(messages) == len(run):
            self._runs.popleft()
            self._at = 0
        else:
            self._at = at + len(messages)
        return messages


class Shelf:
    """All that one lite pull consumer holds. Owned by the event loop; everything here is synchronous."""

    def __init__(self, deliveries: Deliveries, most: int, count: Callable[[], int], paused: set[MessageQueue]) -> None:
        """``most`` messages of all queues together stop the pulling; ``count`` are held in all of them.

        Queues that are ``paused`` give nothing; who pauses them changes the set.
        """
        self._deliveries, self._most, self.count, self.paused = deliveries, most, count, paused
        self._ready: deque[OwnedQueue] = deque()
        self._in_hand: list[tuple[OwnedQueue, list[ReceivedMessage]]] = []
        self.arrived = asyncio.Event()
        """Set when there may be something to take, or a reason to wait no longer."""

    def queue(self, queue: MessageQueue, start_offset: int) -> PolledQueue:
        """The shelf for a newly owned queue's messages. Shelves of queues that were lost meanwhile are let go."""
        self._ready = deque(owned for owned in self._ready if not owned.dropped)
        return PolledQueue(start_offset, lambda: self._excess(queue))

    def put(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """A pull brought these, in the order of the queue."""
        held = polled(owned)
        if not held.waiting:
            self._ready.append(owned)
        held.hold(messages)
        self.arrived.set()

    def take(self, limit: int) -> list[ReceivedMessage]:
        """Hand out at most ``limit`` messages: of the queue that waited longest, and of the others where that has few.

        None of queues that are dropped, paused or about to be given up. Each queue's come in its order.
        """
        found: list[ReceivedMessage] = []
        for _ in range(len(self._ready)):
            owned = self._ready.popleft()
            if owned.dropped:
                continue
            held = polled(owned)
            if owned.queue not in self.paused and not held.draining:
                while held.waiting and len(found) < limit:
                    found += self._hand_out(owned, held, limit - len(found))
            if held.waiting:
                self._ready.append(owned)
            if len(found) == limit:
                break
        else:
            self.arrived.clear()
        return found

    def _hand_out(self, owned: OwnedQueue, held: PolledQueue, limit: int) -> list[ReceivedMessage]:
        messages = held.take(limit)
        held.in_flight += len(messages)
        self._in_hand.append((owned, messages))
        if len(messages) == 1:
            self._deliveries.enter(owned, messages[0])
        else:
            self._deliveries.enter_batch(owned, messages, kind="poll")
        return messages

    def settle(self) -> None:
        """The program is done with what it has in hand; of a queue that is no longer owned that counts for nothing."""
        in_hand, self._in_hand = self._in_hand, []
        for owned, messages in in_hand:
            held = polled(owned)
            held.in_flight -= len(messages)
            if not held.dropped:
                held.finish_all([message.queue_offset for message in messages])
            self._deliveries.succeed_together(owned, messages)

    def commit(self, owned_queues: Iterable[OwnedQueue]) -> None:
        """Commit the messages that the program has finished, in memory (RocketMQ: commitAll)."""
        for owned in owned_queues:
            held = polled(owned)
            if held.position is not None:
                held.committed = held.position

    def resume(self, queues: Iterable[MessageQueue], owned_queues: Iterable[OwnedQueue]) -> None:
        """Hand out and pull these again, at once."""
        self.paused.difference_update(queues)
        for owned in owned_queues:
            if owned.queue not in self.paused and owned.process_queue.on_room is not None:
                owned.process_queue.on_room()
        self.arrived.set()

    def _excess(self, queue: MessageQueue) -> str:
        if queue in self.paused:
            return "paused"
        count = self.count()
        return f"{count} messages held in all queues" if count > self._most else ""


def polled(owned: OwnedQueue) -> PolledQueue:
    """The messages of an owned queue of a lite pull consumer."""
    held = owned.process_queue
    assert isinstance(held, PolledQueue)
    return held
