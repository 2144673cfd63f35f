"""Messages whose handler takes too long: given back for another try while the handler still runs (cause B13).

Source: RocketMQ ``ProcessQueue.cleanExpiredMsg``, ``ConsumeMessageConcurrentlyService.cleanExpireMsg``.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.received import ReceivedMessage

log = logging.getLogger("dejamq.clients.consumer")

DELAY_LEVEL = 3
ROUNDS = 16  # messages of one queue at a time
SHORTEST_INTERVAL_S = 0.01


@dataclass(slots=True, eq=False)
class HandlerCall:
    """What one worker does for one queue; written by the worker at each message, so it is only a few fields, and no
    struct of msgspec, which is written at ten times the price.

    ``now`` is in the handler, or the list ``batch`` is. ``done`` ended well since the worker last let others run;
    ``Results.catch_up`` settles them, so that nobody else ever sees any. ``told`` had been entered, not ended, by then.
    """

    owned: OwnedQueue | None = None
    now: ReceivedMessage | None = None
    batch: list[ReceivedMessage] | None = None
    began_s: float = 0.0
    done: list[ReceivedMessage] = field(default_factory=list)
    told: ReceivedMessage | None = None
    count: int = 0
    counted_s: float = 0.0
    """How many have been settled, since when, that are not in the statistics yet."""
    again: bool = False
    """A handler of this process queue has had them."""

    def begin(self, owned: OwnedQueue, now_s: float, *, again: bool) -> None:
        """From now on it is about this queue."""
        self.owned, self.again, self.began_s, self.counted_s = owned, again, now_s, now_s

    def end(self) -> None:
        """It has nothing in hand."""
        self.owned = self.now = self.batch = self.told = None


class GiveBack(Protocol):
    """``SendBack``, or what stands for it where nothing is sent back."""

    async def send(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, /, *, expired: bool = False
    ) -> bool: ...


class Overdue:
    """Looks at the first unfinished message of every queue, once in each ``consume_timeout_ms``.

    A slow handler is found when that time is over for it, at the latest when it is over twice. Only the first message:
    it is what holds the low-water mark of all others. Owned by the event loop.
    """

    def __init__(
        self, timeout_ms: float, send_back: GiveBack, age_s: Callable[[], float],
        on_kept: Callable[[OwnedQueue, ReceivedMessage], None],
    ) -> None:  # fmt: skip
        """``age_s`` is the clock by which workers note when a handler began.

        ``on_kept`` is called with a message that could not be given back, and whose handler ended meanwhile.
        """
        self._timeout_s, self._send_back, self._age_s = timeout_ms / 1000, send_back, age_s
        self._on_kept = on_kept
        self._workers: list[HandlerCall] = []
        self._leaving: set[tuple[int, int]] = set()

    def worker(self) -> HandlerCall:
        """Where one more worker notes what it does."""
        self._workers.append(HandlerCall())
        return self._workers[-1]

    def leaving(self, owned: OwnedQueue, queue_offset: int) -> bool:
        """Whether the message is being given back here at this moment; nobody else may do it as well."""
        return (owned.number, queue_offset) in self._leaving

    async def run(self, owned: Callable[[], Iterable[OwnedQueue]]) -> None:
        """Sweep at the interval, until cancelled."""
        while True:
            await asyncio.sleep(max(self._timeout_s, SHORTEST_INTERVAL_S))
            await self.sweep(owned(), self._age_s())

    async def sweep(self, owned_queues: Iterable[OwnedQueue], now_s: float) -> None:
        """Give back what its handler has had for longer than the time-out at ``now_s``."""
        await asyncio.gather(*(self._clean(owned, now_s) for owned in tuple(owned_queues)))

    async def _clean(self, owned: OwnedQueue, now_s: float) -> None:
        held = owned.process_queue
        for _ in range(min(len(held), ROUNDS)):
            message = None if held.dropped else self._running(owned, held.low_water, now_s - self._timeout_s)
            if message is None or not await self._give_back(owned, message):
                return

    async def _give_back(self, owned: OwnedQueue, message: ReceivedMessage) -> bool:
        key, held = (owned.number, message.queue_offset), owned.process_queue
        log.warning("handler_overdue message_id=%s: sent back after %.0f s", message.message_id, self._timeout_s)
        message.failure = f"its handler ran for more than {self._timeout_s:.0f} s"
        self._leaving.add(key)
        held.settling += 1
        try:
            stored = await self._send_back.send(owned, message, DELAY_LEVEL, expired=True)
            if stored and not held.dropped:
                held.finish(message.queue_offset)
        finally:
            self._leaving.discard(key)
            held.settling -= 1
        if held.dropped:
            return False
        if not stored and message.queue_offset in held and not self._running(owned, message.queue_offset):
            self._on_kept(owned, message)
        return stored

    def _running(self, owned: OwnedQueue, queue_offset: int, before_s: float = float("inf")) -> ReceivedMessage | None:
        """The message of this place that a handler has had since before that time."""
        for one in self._workers:
            if one.owned is owned and one.began_s < before_s:
                for message in one.batch or (one.now,):
                    if message is not None and message.queue_offset == queue_offset:
                        return message
        return None
