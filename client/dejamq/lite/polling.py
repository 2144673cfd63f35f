"""The polls of one lite pull consumer: waiting for messages, and the automatic commit."""

import asyncio
import time

from dejamq.lite.running import LiteRunning
from dejamq.receiving.received import ReceivedMessage

SLICE_S = 0.005  # how long polls that find something at once may keep the loop from everything else


class Polling:
    """Owned by the event loop. The only waits are before messages are taken, so that no cancellation loses one."""

    def __init__(self, running: LiteRunning, auto_commit: bool) -> None:
        self._running, self._auto_commit = running, auto_commit
        self._interval_s = running.config.auto_commit_interval_ms / 1000
        self._commit_due_s = self._yielded_s = 0.0

    async def messages(self, limit: int, until_s: float | None) -> list[ReceivedMessage]:
        """What is there, or what comes until that time (monotonic; None: at any time). Empty when closed meanwhile.

        Messages of earlier calls are done now. The automatic commit covers it at once when its interval is over, or
        while this call waits.
        """
        shelf = self._running.shelf
        if time.monotonic() - self._yielded_s > SLICE_S:
            await asyncio.sleep(0)
            self._yielded_s = time.monotonic()
        shelf.settle()
        while not self._running.closing:
            now_s = time.monotonic()
            self._commit(now_s)
            messages = shelf.take(limit)
            if messages or (until_s is not None and now_s >= until_s):
                return messages
            await self._arrival(now_s, until_s)
        return []

    def next_now(self) -> ReceivedMessage | None:
        """One message as ``messages`` gives it, when it is there and nothing else waits for the loop; else None.

        For ``async for``, which would pay more for a coroutine a message than for the message.
        """
        now_s, shelf = time.monotonic(), self._running.shelf
        if self._running.closing or now_s - self._yielded_s > SLICE_S or not shelf.arrived.is_set():
            return None
        shelf.settle()
        self._commit(now_s)
        messages = shelf.take(1)
        return messages[0] if messages else None

    async def _arrival(self, now_s: float, until_s: float | None) -> None:
        """Until something may be there, at most until that time or the next automatic commit."""
        ends = [end for end in (until_s, self._commit_due_s if self._auto_commit else None) if end is not None]
        delay_s = min(ends) - now_s if ends else None
        try:
            async with asyncio.timeout(delay_s):
                await self._running.shelf.arrived.wait()
            self._yielded_s = time.monotonic()
        except TimeoutError:
            pass

    def _commit(self, now_s: float) -> None:
        """Into memory, as RocketMQ's maybeAutoCommit; the timer of offsets sends it."""
        if self._auto_commit and now_s >= self._commit_due_s:
            self._running.shelf.commit(self._running.rebalancer.assignment)
            self._commit_due_s = now_s + self._interval_s
