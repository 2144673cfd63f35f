"""Clients that a program leaves open: what they had taken on and not finished is told once, with its number.

As transports of asyncio do: a log line and a ResourceWarning, when the client's loop ends, when the client is garbage,
or at the interpreter's exit, whichever comes first.
"""

import logging
import warnings
import weakref
from collections.abc import Callable

from dejamq.values.forking import ProcessOrigin

log = logging.getLogger("dejamq")


class Unclosed:
    """One started client. It costs nothing until its end: what is left is counted only then."""

    def __init__(self, owner: object, what: str, left: Callable[[], str]) -> None:
        """``left`` says in words what is not finished, "" for nothing. It must not hold the owner."""
        self._what, self._left, self._origin = what, left, ProcessOrigin()
        self._ended = False
        self._finalizer = weakref.finalize(owner, self.tell)

    def tell(self) -> None:
        """Nobody will finish what is left. A child that was forked meanwhile has nothing to tell."""
        ended = self._ended
        self.close()
        left = self._left() if not ended and self._origin.here else ""
        if left:
            text = f"{self._what} was not closed: {left}; use `async with`, or await close()"
            log.warning("client_unclosed %s", text)
            warnings.warn(text, ResourceWarning, stacklevel=2)

    def close(self) -> None:
        """The program closes the client: from now on nothing is told."""
        self._ended = True
        self._finalizer.detach()
