"""Writing beside an event loop: a thread hands a journal's lines to the kernel, in their order.

A disk that hangs then keeps no server from its clients. So many bytes wait for it at most. Later lines are lost, and
the hole in ``seq`` tells of them.
"""

import threading
from collections import deque
from collections.abc import Callable

MOST_WAITING = 16 << 20
"""Bytes of lines that wait for a disk: some seconds of a busy broker."""
LAST_WAIT_S = 5.0
"""How long the end of a journal waits for the disk."""


class BesideLoop:
    """The thread of one journal, which begins with the first lines and ends with ``end``."""

    def __init__(self, write: Callable[[bytearray], None]) -> None:
        """``write`` is called in the thread. It never raises."""
        self._write = write
        self._waiting: deque[bytearray] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    def put(self, lines: bytearray) -> bool:
        """Have these written. False: too much waits already."""
        with self._changed:
            if self._bytes + len(lines) > MOST_WAITING:
                return False
            self._waiting.append(lines)
            self._bytes += len(lines)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dejamq-journal", daemon=True)
            self._thread.start()
        return True

    def done(self, timeout_s: float = LAST_WAIT_S) -> bool:
        """Wait until all is written. False: the disk does not take it in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._bytes, timeout_s)

    def drop(self) -> None:
        """What waits is lost."""
        with self._changed:
            self._bytes -= sum(map(len, self._waiting))
            self._waiting.clear()

    def end(self) -> None:
        """The thread ends, when the disk lets it."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._ending)
                if not self._waiting:
                    return
                lines = self._waiting.popleft()
            size = len(lines)
            self._write(lines)
            with self._changed:
                self._bytes -= size
                self._changed.notify_all()
