"""Memory that the C library keeps after a peak goes back to the system.

glibc gives back only what lies at the end of a heap. One small object behind the buffers of a peak keeps all of them
in the process, for ever. ``malloc_trim`` gives back whole free pages wherever they lie. Elsewhere (musl, macOS) nothing
is done: those libraries give back by themselves.
"""

import asyncio
import ctypes
import logging
from collections import deque
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
LOOK_S = 10.0
LOOKS = 3
"""Under steady load memory is free for moments. What was free at so many looks, one after the other, is given back."""
MOST_KEPT_BYTES = 32 << 20
"""More than this beside what is in use is given back."""
STATUS = Path("/proc/self/status")
OWN = "RssAnon:"


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later: bytes of all of its heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "top",
        )
    ]  # fmt: skip


def _library() -> Any:
    """The C library of this process; None where it is not glibc, or an old one."""
    library = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _MallInfo
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except AttributeError:
        return None
    return library


LIBRARY = _library()


def used_bytes() -> int:
    """What this process has from the C library and has not freed; 0 where the library does not tell."""
    if not LIBRARY:
        return 0
    told = LIBRARY.mallinfo2()
    return int(told.uordblks + told.hblkhd)


def own_bytes() -> int:
    """Memory of this process without mapped files; 0 where the system does not tell."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(OWN)), 0)


def give_back() -> None:
    """Give all free pages back. Other threads may wait for memory meanwhile: 20 to 60 ms for 300 MiB."""
    if LIBRARY:
        LIBRARY.malloc_trim(0)


def unused_bytes() -> int:
    """What the process has beside what is in use: kept buffers, and what the interpreter has for small objects."""
    return own_bytes() - used_bytes()


class Heap:
    """Looks now and then whether much is kept. Owned by the event loop; the work is done beside it."""

    def __init__(self, look_s: float = LOOK_S, most_kept_bytes: int = MOST_KEPT_BYTES, looks: int = LOOKS) -> None:
        self._look_s, self._most = look_s, most_kept_bytes
        self._last: deque[int] = deque(maxlen=looks)
        self._least = 0
        """What was unused when that was last least: it cannot be given back."""

    async def run(self) -> None:
        """Until it is cancelled."""
        while LIBRARY:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Once."""
        await asyncio.to_thread(self._look)

    def _look(self) -> None:
        self._last.append(unused_bytes())
        self._least = min(self._least, self._last[-1]) if self._least else self._last[-1]
        if len(self._last) < (self._last.maxlen or 0) or min(self._last) - self._least <= self._most:
            return
        give_back()
        self._least = unused_bytes()
        log.debug("heap_given_back mib=%d", (self._last[-1] - self._least) >> 20)
        self._last.clear()
