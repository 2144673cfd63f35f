"""What a consumer holds of one queue, and how far it may be committed. Pure: no clock, no loop, no messages.

Only places and sizes are kept here; the messages themselves wait with the dispatcher. The offset to commit is the
*low-water mark*: the smallest unfinished one, else the one after the last. Messages finished above an unfinished one
are therefore delivered again to the next owner (cause O7). Source: RocketMQ ``ProcessQueue``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """When to stop pulling. A limit is exceeded by more than its value, and checked before a pull, not after it."""

    count: int = 1000
    size_bytes: int = 100 << 20
    span: int = 2000


class ProcessQueue:
    """Unfinished messages of one queue while this client owns it. Every operation is O(1) amortised a message.

    ``_order`` holds the offsets in order and is cleaned lazily at both ends: finished ones inside stay until they
    surface. A dict alone would not do: finding its first key costs a walk over everything deleted before it.
    """

    __slots__ = (
        "_end",
        "_held",
        "_order",
        "_settled",
        "cached_bytes",
        "draining",
        "dropped",
        "in_flight",
        "on_room",
        "settling",
    )

    def __init__(self, start_offset: int) -> None:
        self._held: dict[int, int] = {}
        self._order: deque[int] = deque()
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
        """Called at each finished message; set only while somebody waits for room."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._held

    def put(self, queue_offsets: Sequence[int], sizes: Sequence[int]) -> None:
        """Add messages with these body sizes. One that is held already is not counted again.

        O(1) a message while they come in order, which one fetcher guarantees; anything else costs a sort.
        """
        fresh = dict(zip(queue_offsets, sizes, strict=True))
        if not fresh:
            return
        places = list(fresh)
        if places[0] >= self._end and places == sorted(places):
            self.cached_bytes += sum(fresh.values())
            self._order.extend(places)
            self._held |= fresh
        else:
            self.cached_bytes += sum(fresh.values()) - sum(self._held[offset] for offset in fresh.keys() & self._held)
            self._held |= fresh
            self._order = deque(sorted(self._held))
        self._end = max(self._end, self._order[-1] + 1)

    def finish(self, queue_offset: int) -> bool:
        """The message needs no more of this owner. False when it is not held (any more).

        The caller may finish in any order; the low-water mark moves only over what is finished without a hole.
        """
        size = self._held.pop(queue_offset, -1)
        if size < 0:
            return False
        self.cached_bytes -= size
        self._settled = True
        order, held = self._order, self._held
        while order and order[0] not in held:
            order.popleft()
        if self.on_room is not None:
            self.on_room()
        return True

    def finish_all(self, queue_offsets: Iterable[int]) -> None:
        """As ``finish`` for messages that are all held, at a fraction of the cost. Raises KeyError for another one."""
        self.cached_bytes -= sum(map(self._held.pop, queue_offsets))
        self._settled = True
        order, held = self._order, self._held
        while order and order[0] not in held:
            order.popleft()
        if self.on_room is not None:
            self.on_room()

    def advance(self, next_offset: int) -> None:
        """Everything before ``next_offset`` has been seen: nothing there, or filtered out."""
        self._end = max(self._end, next_offset)
        self._settled = True

    @property
    def busy(self) -> bool:
        """What runs now may still move the low-water mark."""
        return bool(self.in_flight or self.settling)

    @property
    def low_water(self) -> int:
        """The smallest unfinished offset, else the one after the last: what may be committed."""
        return self._order[0] if self._order else self._end

    @property
    def commit_offset(self) -> int | None:
        """The low-water mark once anything is known beyond the start; before that there is nothing to commit."""
        return self.low_water if self._settled else None

    @property
    def ends(self) -> tuple[int, int] | None:
        """The first and the last unfinished offset; None while there is none."""
        span = self.span
        return (self._order[0], self._order[0] + span) if self._order else None

    @property
    def span(self) -> int:
        """Distance from the first to the last unfinished message: what an owner change may replay."""
        order = self._order
        while order and order[-1] not in self._held:
            order.pop()
        return order[-1] - order[0] if order else 0

    def excess(self, limits: Limits) -> str:
        """Which limit is exceeded, in words for the log; empty while there is room."""
        if len(self._held) > limits.count:
            return f"{len(self._held)} messages held"
        if self.cached_bytes > limits.size_bytes:
            return f"{self.cached_bytes} bytes held"
        if self.span > limits.span:
            return f"unfinished messages span {self.span} offsets"
        return ""
