"""Signals: a part tells something, and others may listen. A part that is needed is a constructor's argument instead."""

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    """Call ``tell``; it calls each listener, in the order in which they were connected.

    ``tell`` is a function that ``connect`` replaces, so it costs one call with one listener, and about that without.
    Read it from the signal each time.
    """

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()
        self.tell: Callable[P, object] = _nobody

    @property
    def connected(self) -> bool:
        """Whether there is a listener."""
        return bool(self._listeners)

    def connect(self, listener: Callable[P, object]) -> None:
        """From now on the listener is called too."""
        self._listeners = (*self._listeners, listener)
        self.tell = listener if len(self._listeners) == 1 else self._tell_all

    def _tell_all(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)


def _nobody(*args: object, **kwargs: object) -> None:
    """Stands where no listener is."""
