"""How far long work is: one line on standard error that is written over, for people only."""

import sys
import time

FIRST_AFTER_S, EVERY_S = 1.0, 0.5


class Progress:
    """Counts; shows nothing where standard error is no terminal, nor of work that is done within a second."""

    def __init__(self, what: str) -> None:
        self.count = 0
        self._what, self._shown = what, False
        self._began = time.monotonic()
        self._next = self._began + FIRST_AFTER_S
        self._on = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Count ``count`` more."""
        self.count += count
        now = time.monotonic()
        if self._on and now >= self._next:
            self._next, self._shown = now + EVERY_S, True
            rate = self.count / (now - self._began)
            sys.stderr.write(f"\r\x1b[K{self.count:,} {self._what}, {rate:,.0f} a second")
            sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
