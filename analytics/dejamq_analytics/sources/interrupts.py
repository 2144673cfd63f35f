"""Ctrl-C that waits for the end of what it must not interrupt.

Only the main thread gets signals; in another one nothing here changes anything.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C counts when the block has ended, and the second one at once."""
    came: list[int] = []
    with handling(lambda then: lambda number, frame: then(number, frame) if came else came.append(number)):
        yield
    if came:
        signal.raise_signal(signal.SIGINT)


@contextmanager
def handling(around: Callable[[Handler], Handler]) -> Iterator[None]:
    """Replace the handler of SIGINT by ``around`` of it. A process that ignores SIGINT still does."""
    earlier = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(earlier):
        yield
        return
    signal.signal(signal.SIGINT, around(earlier))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
