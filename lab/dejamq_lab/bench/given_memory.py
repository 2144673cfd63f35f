"""Memory that is the machine's own, as on one that has been up for a while: there files have filled what is free.

A virtual machine may have been lent most of its memory only by name: a page that it has never touched, or gave back,
has to be got from its host by whoever writes there first, and costs ten times what it costs afterwards. So the same
flood was fast into the first 2 GiB and slow from there on, whoever wrote it.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from typing import Self

from dejamq_lab.usage import free_bytes

LEFT_BYTES = 256 << 20
"""Stay free: twice what the kernel keeps free before it drops pages of files, with 24 GiB."""
STEP_BYTES = 64 << 20
READ_BYTES = 4 << 20
TELL_S = 5


class GivenMemory:
    """While it is entered, free memory holds pages of a file, which the kernel drops for whatever else needs them.

    The file has no blocks on the disk, and goes at the end.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes of the file, of which the last to be read are there."""

    def __enter__(self) -> Self:
        self._file = tempfile.TemporaryFile(prefix="dejamq-bench-")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    async def fill(self, tell: Callable[[str], None] = lambda line: None) -> int:
        """All that is free but a rest. Gives how much that was (bytes).

        ``tell`` is told every few seconds how far it is.
        """
        size = max(0, free_bytes() - LEFT_BYTES)
        begin, self.size = self.size, self.size + size
        self._file.truncate(self.size)
        told = time.monotonic()
        for at in range(begin, self.size, STEP_BYTES):
            await asyncio.to_thread(self._read, at, min(at + STEP_BYTES, self.size))
            if time.monotonic() - told > TELL_S:
                tell(f"filled {(at - begin) / 1e9:.1f} of {size / 1e9:.1f} GB")
                told = time.monotonic()
        return size

    def _read(self, at: int, end: int) -> None:
        room = bytearray(READ_BYTES)
        while at < end and (read := os.preadv(self._file.fileno(), [room], at)):
            at += read
