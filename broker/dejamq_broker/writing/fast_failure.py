"""Work that waited too long is refused instead of done late: its client has given it up, or is about to.

RocketMQ keeps requests in queues and looks at their heads every 10 ms (BrokerFastFailure). Here the event loop does the
work, so work waits where the loop cannot see it: in sockets, while the loop stands still. How long a run waited there
follows from when its client sent it, by the client's own clock, and from when the loop stood still.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from dejamq_proto.codes import Code, DejamqError

from dejamq_broker.base.config import LimitSettings

TICK_MS = 25
IDLE_TICK_MS = 100
"""While no runs come: these looks are most of the cost of an idle broker."""
REMEMBERED = 64
BUSY = "broker busy, start flow control for a while, period in queue: {waited}ms, size of queue: {size}"


class Arrivals:
    """When the runs of one stream came, as early as can be. Pure.

    Clocks of client and broker have nothing to do with one another; the quickest run seen so far tells how they are
    apart. A run that came as quickly arrived at ``of``; one that was slow on its way arrived later than that.
    """

    def __init__(self) -> None:
        self._apart: float | None = None

    def of(self, sent_ms: int, now_ms: float) -> float:
        """On the broker's clock; ``sent_ms`` 0 is a client that does not tell: it arrived now."""
        if not sent_ms:
            return now_ms
        apart = now_ms - sent_ms
        if self._apart is None or apart < self._apart:
            self._apart = apart
        return sent_ms + self._apart


class Stalls:
    """When the loop stood still. Pure: ``tick`` is called when it was promised, or as soon as the loop can."""

    def __init__(self, now_ms: float) -> None:
        self._last_tick, self._most_ms = now_ms, 2.0 * TICK_MS
        self._seen: deque[tuple[float, float]] = deque(maxlen=REMEMBERED)

    def tick(self, now_ms: float, next_ms: float = TICK_MS) -> None:
        """The loop came to its work, and will again in ``next_ms`` if nothing holds it up.

        A stall counts from the tick before it; that is too early only for runs that were taken before it began.
        """
        if now_ms - self._last_tick > self._most_ms:
            self._seen.append((self._last_tick, now_ms))
        self._last_tick, self._most_ms = now_ms, next_ms + TICK_MS

    def within(self, since_ms: float, now_ms: float) -> float:
        """How long (ms) the loop stood still between the two times."""
        stands = now_ms - self._last_tick > self._most_ms
        if not stands and (not self._seen or self._seen[-1][1] <= since_ms):
            return 0.0  # almost all runs come after the last of them
        stalls = [*self._seen, (self._last_tick, now_ms)] if stands else self._seen
        return sum(max(0.0, min(end, now_ms) - max(begin, since_ms)) for begin, end in stalls if end > since_ms)


class FastFailure:
    """Decides whether a run is stored or refused as late. Owned by the event loop.

    A refusal is definite: it comes before anything of the run was looked at. Source: RocketMQ ``BrokerFastFailure``;
    the remarks are the same as in its answers.
    """

    def __init__(self, config: LimitSettings) -> None:
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._stalls = Stalls(self.now_ms())
        self._timer: asyncio.TimerHandle | None = None
        self._busy_disk: tuple[float, float] | None = None
        self._waiting_bytes = 0
        self._runs_came = False
        self.waiting = 0
        """Runs that came and are not answered: runs that wait for space, and runs that wait for disk and slaves."""

    def start(self) -> None:
        """Begin to look at the loop."""
        next_ms, self._runs_came = TICK_MS if self._runs_came else IDLE_TICK_MS, False
        self._stalls.tick(self.now_ms(), next_ms)
        self._timer = self._loop.call_later(next_ms / 1000, self.start)

    async def close(self) -> None:
        """Stop looking. May be called twice."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def now_ms(self) -> float:
        """The clock of everything here, which no change of wall time moves."""
        return self._loop.time() * 1000

    def appended(self, took_ms: float) -> None:
        """An append came back. One that took long stood at the disk, and the loop with it."""
        if took_ms > self._config.os_page_cache_busy_timeout_ms:
            now_ms = self.now_ms()
            self._busy_disk = now_ms - took_ms, now_ms

    def check_arrived(self, arrived_ms: float) -> None:
        """Raises SYSTEM_BUSY for a run that the loop left waiting since it came."""
        self._runs_came = True
        if self._config.broker_fast_failure_enable:
            now_ms = self.now_ms()
            waited_ms = self._stalls.within(arrived_ms, now_ms)
            if waited_ms > self._config.wait_time_in_send_queue_ms:
                raise self._late(waited_ms, self._was_disk(arrived_ms))

    def check_room(self) -> None:
        """Raises SYSTEM_BUSY when as many runs wait as may."""
        if self.waiting > self._config.send_queue_capacity:
            text = f"[OVERLOAD]system busy, start flow control for a while: {self.waiting} runs wait"
            raise DejamqError(text, code=Code.SYSTEM_BUSY)

    @contextmanager
    def waits(self, size: int) -> Iterator[None]:
        """A run of this size waits for the runs before it. Raises SYSTEM_BUSY when too many bytes would."""
        if self._waiting_bytes + size > self._config.send_queue_max_bytes:
            text = f"[OVERLOAD]system busy, start flow control for a while: {self._waiting_bytes} bytes of runs wait"
            raise DejamqError(text, code=Code.SYSTEM_BUSY)
        self._waiting_bytes += size
        try:
            yield
        finally:
            self._waiting_bytes -= size

    def late(self, waited_ms: float) -> DejamqError:
        """The refusal of a run that waited for this time for the runs before it."""
        return self._late(waited_ms, disk=False)

    def patience_ms(self) -> float | None:
        """How long a run may wait for those before it; None: for ever."""
        return self._config.wait_time_in_send_queue_ms if self._config.broker_fast_failure_enable else None

    def _was_disk(self, arrived_ms: float) -> bool:
        return self._busy_disk is not None and self._busy_disk[1] > arrived_ms

    def _late(self, waited_ms: float, disk: bool) -> DejamqError:
        kind = "PCBUSY_CLEAN_QUEUE" if disk else "TIMEOUT_CLEAN_QUEUE"
        text = BUSY.format(waited=round(waited_ms), size=self.waiting)
        return DejamqError(f"[{kind}]{text}", code=Code.SYSTEM_BUSY)
