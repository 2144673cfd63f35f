"""The inbox for plain handlers in threads."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from dejamq.inbox import FIRST_PAUSE_S, LONGEST_PAUSE_S, Marks
from dejamq.receiving.received import ReceivedMessage


class Inbox:
    """``dejamq.Inbox`` with ``with``: for handlers in threads.

    Handlers that share a connection take turns; a SQLite one needs ``check_same_thread=False`` for that. A connection
    and an inbox for each thread do not wait for each other.
    """

    def __init__(self, connection: Any, **options: Any) -> None:
        """As ``dejamq.Inbox``."""
        self._marks = Marks(connection, options)

    @contextlib.contextmanager
    def once(self, message: ReceivedMessage, *, key: str | None = None) -> Iterator[bool]:
        """As ``dejamq.Inbox.once``."""
        marks, place = self._marks, self._marks.key(message, key)
        with _turn(marks.connection):
            self._begin(place)
            first = marks.mark(place)
            if first:
                with marks.effect():
                    yield True
        if not first:
            yield False

    def _begin(self, place: tuple[str, str, str]) -> None:
        pause_s = FIRST_PAUSE_S
        deadline = time.monotonic() + self._marks.options.wait_ms / 1000
        while not self._marks.begin(place):
            if time.monotonic() >= deadline:
                raise self._marks.busy(place)
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


class _TurnOfThreads:
    def __init__(self) -> None:
        self.lock, self.users = threading.Lock(), 0


_turns: dict[int, _TurnOfThreads] = {}
_guard = threading.Lock()


@contextlib.contextmanager
def _turn(connection: Any) -> Iterator[None]:
    """One transaction of a connection at a time, whichever inbox opens it. Kept only while somebody is in it."""
    with _guard:
        turn = _turns.setdefault(id(connection), _TurnOfThreads())
        turn.users += 1
    try:
        with turn.lock:
            yield
    finally:
        with _guard:
            turn.users -= 1
            if not turn.users:
                del _turns[id(connection)]
