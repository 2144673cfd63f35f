"""Knowing whether a client is still in the process and the loop that made it, without asking for each message."""

import asyncio
import os
import weakref

from dejamq_proto.codes import ClientClosed, ForkedProcess


class ProcessOrigin:
    """``here`` is true in the process that made it, false in a child forked from that."""

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        _origins.add(self)

    def check(self, what: str) -> None:
        """Raise ForkedProcess in a child: its parent's connections and tasks are not the child's to use or end."""
        if not self.here:
            raise ForkedProcess(f"this {what} was made before fork; make a new one in the child process")


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise ClientClosed when the event loop that a client was started in has ended, as that of an ``asyncio.run``."""
    if loop.is_closed():
        raise ClientClosed("the event loop of this client has ended, with its asyncio.run; make a new one in this loop")


_origins: "weakref.WeakSet[ProcessOrigin]" = weakref.WeakSet()


def _forked() -> None:
    for origin in _origins:
        origin.here = False


os.register_at_fork(after_in_child=_forked)
