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


def looked(least: int, most_kept_bytes: int) -> int:
    """Give back what is kept, if it is much. ``least``: the memory beside what is in use when it was last least.

    That is what the interpreter has for small objects, and pages of which a part is in use. Returns it as it is now.
    """
    rest = own_bytes() - used_bytes()
    if rest - least <= most_kept_bytes:
        return min(least, rest)
    give_back()
    left = own_bytes() - used_bytes()
    log.debug("heap_given_back mib=%d", (rest - left) >> 20)
    return left


class Heap:
    """Looks now and then whether much is kept. Owned by the event loop; the work is done beside it."""

    def __init__(self, look_s: float = LOOK_S, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self._look_s, self._most, self._least = look_s, most_kept_bytes, 0

    async def run(self) -> None:
        """Until it is cancelled."""
        while LIBRARY:
            await asyncio.sleep(self._look_s)
            await self.look()

    async def look(self) -> None:
        """Once."""
        self._least = await asyncio.to_thread(looked, self._least, self._most)
