"""Knowing whether a client is still in the process that made it, without asking the kernel for each message."""

import os
import weakref

from dejamq_proto.codes import ForkedProcess


class Origin:
    """``here`` is true in the process that made it, false in a child forked from that."""

    __slots__ = ("__weakref__", "here")

    def __init__(self) -> None:
        self.here = True
        _origins.add(self)

    def check(self, what: str) -> None:
        """Raise ForkedProcess in a child: its parent's connections and tasks are not the child's to use or end."""
        if not self.here:
            raise ForkedProcess(f"this {what} was made before fork; make a new one in the child process")


_origins: "weakref.WeakSet[Origin]" = weakref.WeakSet()


def _forked() -> None:
    for origin in _origins:
        origin.here = False


os.register_at_fork(after_in_child=_forked)
