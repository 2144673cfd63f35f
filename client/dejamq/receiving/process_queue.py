"""The unfinished messages of one queue, and how far it may be committed. Pure: no clock, no loop, no messages.

Only places and sizes are kept here; the messages themselves wait with the dispatcher. The offset to commit is the
*low-water mark*: the smallest unfinished one, else the one after the last. Messages finished above an unfinished one
are therefore delivered again to the next owner (cause O7). Source: RocketMQ ``ProcessQueue``.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import lt

import msgspec


class FlowLimits(msgspec.Struct, frozen=True):
    """When to stop pulling. A limit is exceeded by more than its value, and checked before a pull, not after it."""

    count: int = 1000
    size_bytes: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """Unfinished messages of one queue while this client owns it. Every operation is O(1) amortised a message.

    Two arrays hold what was put, in the order of the queue, finished ones too until they are trimmed. Everything before
    ``_head`` is finished; ``_later`` are the offsets that were finished behind it while an earlier one was not. So a
    run that ends in its order, as nearly all do, costs one comparison and one step of the head.
    """

    __slots__ = (
        "_end",
        "_head",
        "_later",
        "_offsets",
        "_settled",
        "_sizes",
        "cached_bytes",
        "draining",
        "dropped",
        "in_flight",
        "on_room",
        "settling",
    )

    def __init__(self, start_offset: int) -> None:
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._head = 0
        self._later: set[int] = set()
        self._end = start_offset
        self._settled = False
        self.cached_bytes = 0
        self.dropped = False
        self.draining = False
        """No further message of it reaches a handler; results of those that run still count."""
        self.in_flight = 0
        self.settling = 0
        """Failed messages on their way back to the broker."""
        self.on_room: Callable[[], None] | None = None
        """Called when messages were finished; set only while somebody waits for room."""

    def __len__(self) -> int:
        return len(self._offsets) - self._head - len(self._later)

    def __contains__(self, queue_offset: int) -> bool:
        return self._place(queue_offset) >= 0

    def put(self, queue_offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Add messages with these body sizes. One that is held already is not counted again.

        Next to nothing while they come in order, which one fetcher guarantees; anything else costs a sort.
        """
        if not queue_offsets:
            return
        if queue_offsets[0] >= self._end and _ascend(queue_offsets):
            self._trim()
            self._offsets += queue_offsets
            self._sizes += sizes
            self.cached_bytes += sum(sizes)
        else:
            self._merge(dict(zip(queue_offsets, sizes, strict=True)))
        self._end = max(self._end, self._offsets[-1] + 1)

    def _merge(self, fresh: dict[int, int]) -> None:
        unfinished = {
            offset: size
            for offset, size in zip(self._offsets[self._head :], self._sizes[self._head :], strict=True)
            if offset not in self._later
        }
        merged = dict(sorted((unfinished | fresh).items()))
        self._offsets, self._sizes, self._head = list(merged), list(merged.values()), 0
        self._later.clear()
        self.cached_bytes = sum(self._sizes)

    def _trim(self) -> None:
        """Forget the finished ones in front, once they are more than the others."""
        if self._head * 2 > len(self._offsets):
            del self._offsets[: self._head], self._sizes[: self._head]
            self._head = 0

    def finish(self, queue_offset: int) -> bool:
        """The message needs no more of this owner. False when it is not held (any more).

        The caller may finish in any order; the low-water mark moves only over what is finished without a hole.
        """
        found = self._finish(queue_offset)
        if found:
            self._some_finished()
        return found

    def finish_all(self, queue_offsets: Sequence[int]) -> None:
        """As ``finish`` for each of them, at a fraction of the cost where they are the first ones that are held."""
        if not queue_offsets:
            return
        head, end = self._head, self._head + len(queue_offsets)
        if not self._later and self._offsets[head:end] == queue_offsets:
            self.cached_bytes -= sum(self._sizes[head:end])
            self._head = end
        else:
            for queue_offset in queue_offsets:
                self._finish(queue_offset)
        self._some_finished()

    def _finish(self, queue_offset: int) -> bool:
        place = self._place(queue_offset)
        if place < 0:
            return False
        self.cached_bytes -= self._sizes[place]
        if place == self._head:
            self._head += 1
            self._step_over()
        else:
            self._later.add(queue_offset)
        return True

    def _place(self, queue_offset: int) -> int:
        """Where an unfinished message stands; -1 for any other."""
        offsets, head = self._offsets, self._head
        if head < len(offsets) and offsets[head] == queue_offset:
            return head
        place = bisect_left(offsets, queue_offset, head)
        here = place < len(offsets) and offsets[place] == queue_offset and queue_offset not in self._later
        return place if here else -1

    def _step_over(self) -> None:
        """A message finished behind the first unfinished one counts once that one is finished as well."""
        offsets, later = self._offsets, self._later
        while later and offsets[self._head] in later:
            later.remove(offsets[self._head])
            self._head += 1

    def _some_finished(self) -> None:
        """Of what is wholly finished nothing is kept until more comes: with hundreds of queues that is tens of MB."""
        if self._head == len(self._offsets):
            self._offsets, self._sizes, self._head = [], [], 0
        self._settled = True
        if self.on_room is not None:
            self.on_room()

    def advance(self, next_offset: int) -> None:
        """Everything before ``next_offset`` has been seen: nothing there, or filtered out."""
        self._end = max(self._end, next_offset)
        self._settled = True

    @property
    def busy(self) -> bool:
        """Running handlers may still move the low-water mark."""
        return bool(self.in_flight or self.settling)

    @property
    def low_water(self) -> int:
        """The smallest unfinished offset, else the one after the last: what may be committed."""
        return self._offsets[self._head] if self._head < len(self._offsets) else self._end

    @property
    def commit_offset(self) -> int | None:
        """The low-water mark once anything is known beyond the start; before that there is nothing to commit."""
        return self.low_water if self._settled else None

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first and the last unfinished offset; None while no offset is unfinished."""
        first, span = self.low_water, self.span
        return (first, first + span) if len(self) else None

    @property
    def span(self) -> int:
        """Distance from the first to the last unfinished message: what an owner change may replay."""
        offsets, later = self._offsets, self._later
        while later and offsets[-1] in later:
            later.remove(offsets.pop())
            self._sizes.pop()
        return offsets[-1] - offsets[self._head] if self._head < len(offsets) else 0

    def excess(self, limits: FlowLimits) -> str:
        """Which limit is exceeded, in words for the log; empty while there is room."""
        held = len(self._offsets) - self._head - len(self._later)  # asked at each message while there is no room
        if held > limits.count:
            return f"{held} messages held"
        if self.cached_bytes > limits.size_bytes:
            return f"{self.cached_bytes} bytes held"
        if self.span > limits.span:
            return f"unfinished messages span {self.span} offsets"
        return ""


def _ascend(queue_offsets: Sequence[int]) -> bool:
    following = iter(queue_offsets)
    next(following)
    return all(map(lt, queue_offsets, following))
