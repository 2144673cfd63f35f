"""One task that repeats a step until it is stopped; the step under way is always finished."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class Periodic:
    """Runs ``step`` every ``interval_ms``, or earlier after ``poke``. A step that raises is logged and tried again."""

    def __init__(self, name: str, interval_ms: float, step: Callable[[], Awaitable[None]]) -> None:
        self.name, self._interval, self._step = name, interval_ms / 1000, step
        self._stopping = False
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; the first step comes after one interval."""
        self._task = asyncio.create_task(self._run(), name=self.name)

    def set_interval(self, interval_ms: float) -> None:
        """From now on; a wait under way ends now."""
        self._interval = interval_ms / 1000
        self.poke()

    def poke(self) -> None:
        """Run the next step now."""
        self._poked.set()

    async def close(self) -> None:
        """Stop after the step under way; may be called twice."""
        self._stopping = True
        self._poked.set()
        if self._task is not None:
            await self._task

    async def cancel(self) -> None:
        """Stop at once, in the middle of a step that may wait for others; may be called twice."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        """A poke that comes while a step runs makes another one follow at once: its cause may have come too late for
        the step under way.
        """
        while True:
            try:
                async with asyncio.timeout(self._interval):
                    await self._poked.wait()
            except TimeoutError:
                pass
            self._poked.clear()
            if self._stopping:
                return
            await self._run_step()

    async def _run_step(self) -> None:
        try:
            await self._step()
        except Exception:
            log.exception("step_failed name=%s", self.name)
