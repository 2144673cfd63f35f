"""The messages of one owned queue that is consumed in order. Pure: no clock, no loop.

Source: RocketMQ ``ProcessQueue`` with its second map ``consumingMsgOrderlyTreeMap``.
"""

from collections import deque
from collections.abc import Sequence

from dejamq.process_queue import ProcessQueue
from dejamq.received import ReceivedMessage


class Lane:
    """What waits for a handler, and what was handed out and is not committed, both in the order of the queue.

    A message leaves the process queue when it is committed, so that what is handed out without that holds the
    low-water mark, and is delivered again to the next owner.
    """

    __slots__ = ("_held", "_waiting", "taken")

    def __init__(self, held: ProcessQueue) -> None:
        self._held = held
        self._waiting: deque[ReceivedMessage] = deque()
        self.taken: list[ReceivedMessage] = []
        """Handed out since the last commit or rollback."""

    def __len__(self) -> int:
        """How many wait for a handler."""
        return len(self._waiting)

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Add messages; the caller gives them in the order of the queue."""
        self._waiting.extend(messages)

    @property
    def next_topic(self) -> str:
        """The topic of the message that is next: its handler is wanted. Raises IndexError when none waits."""
        return self._waiting[0].topic

    def take(self, size: int) -> list[ReceivedMessage]:
        """Hand out the next messages, at most ``size`` and all of one topic (in a retry queue those of many meet)."""
        waiting = self._waiting
        if size == 1:
            messages = [waiting.popleft()]
        else:
            topic, messages = waiting[0].topic, []
            while waiting and len(messages) < size and waiting[0].topic == topic:
                messages.append(waiting.popleft())
        self.taken += messages
        return messages

    def commit(self) -> None:
        """Everything handed out is done."""
        taken, self.taken = self.taken, []
        for message in taken:
            self._held.finish(message.queue_offset)

    def again(self, messages: Sequence[ReceivedMessage]) -> None:
        """The messages handed out last are the next ones again."""
        del self.taken[len(self.taken) - len(messages) :]
        self._waiting.extendleft(reversed(messages))

    def rollback(self) -> None:
        """Everything handed out is next again."""
        self.again(tuple(self.taken))
