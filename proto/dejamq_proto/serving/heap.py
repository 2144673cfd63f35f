"""Memory that the C library keeps after a peak goes back to the system.

glibc gives back only what lies at the end of a heap. One small object behind the buffers of a peak keeps all of them
in the process, for ever. ``malloc_trim`` gives back whole free pages wherever they lie. Elsewhere (musl, macOS) nothing
is done: those libraries give back by themselves.
"""

import asyncio
import ctypes
import logging
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
LOOK_S = 10.0
MOST_KEPT_BYTES = 32 << 20
"""More than this beside what is in use is given back."""
STATUS = Path("/proc/self/status")
OWN = "RssAnon:"


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later: bytes of all of its heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    ]


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


def free_bytes() -> int:
    """Free bytes within the heaps of this process; a part of them may have been given back already."""
    return int(LIBRARY.mallinfo2().fordblks) if LIBRARY else 0


def own_bytes() -> int:
    """Memory of this process without mapped files; 0 where the system does not tell."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(OWN)), 0)


def give_back(most_kept_bytes: int = 0) -> bool:
    """Give all free pages back if more than this is free. Whether it did so.

    Other threads may wait for memory meanwhile: 20 to 60 ms for 300 MiB.
    """
    if not LIBRARY or free_bytes() <= most_kept_bytes:
        return False
    LIBRARY.malloc_trim(0)
    return True


class Heap:
    """Looks now and then whether much is kept. Owned by the event loop; the work is done beside it."""

    def __init__(self, look_s: float = LOOK_S, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self._look_s, self._most = look_s, most_kept_bytes
        self._least = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while LIBRARY:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Give back what is kept, if it is much and the process has grown by as much since the last time."""
        now = own_bytes()
        self._least = min(self._least, now) if self._least else 0
        if now - self._least <= self._most or not await asyncio.to_thread(give_back, self._most):
            return
        self._least = own_bytes()
        log.debug("heap_given_back mib=%d", (now - self._least) >> 20)
