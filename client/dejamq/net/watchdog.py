"""Notices when this process did not run: it was stopped, swapped out, or its loop blocked by the program.

One look every half second for all clients of a loop: a look of its own for each is what wakes a process with many idle
clients most often.
"""

import asyncio
from collections.abc import Callable
from weakref import ReferenceType, WeakKeyDictionary, ref

from dejamq.net.waits import aligned_delay

WATCH_MS = 500
GAP_MS = 1000  # shorter ones are a busy machine, not an absence


class Watchdog:
    """Looks while somebody wants to be told. Owned by an event loop."""

    def __init__(self) -> None:
        self._due_s = 0.0
        self._told: dict[Callable[[int], None], float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, missing: Callable[[int], None]) -> None:
        """Call it with the milliseconds of each absence from now on."""
        self._told[missing] = asyncio.get_running_loop().time()
        if self._timer is None:
            self._look_later()

    def forget(self, missing: Callable[[int], None]) -> None:
        """Tell it no more. May be called twice."""
        self._told.pop(missing, None)
        if not self._told and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + aligned_delay(WATCH_MS / 1000)
        self._timer = loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        now_s, due_s = asyncio.get_running_loop().time(), self._due_s
        self._look_later()
        for missing, since_s in tuple(self._told.items()):
            missing_ms = int((now_s - max(due_s, since_s)) * 1000)
            if missing_ms >= GAP_MS:
                missing(missing_ms)


_watchdogs: WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[Watchdog]] = WeakKeyDictionary()


def watchdog() -> Watchdog:
    """The running loop's. Kept by those who use it, so that it ends with them where a loop ends before they do."""
    loop = asyncio.get_running_loop()
    known = _watchdogs.get(loop)
    found = known() if known is not None else None
    if found is None:
        found = Watchdog()
        _watchdogs[loop] = ref(found)
    return found
