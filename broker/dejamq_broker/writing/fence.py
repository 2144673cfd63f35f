"""Whether this broker may store anything: asked before each record, and again before somebody is told so."""

from typing import Protocol


class Fence(Protocol):
    """``check`` and ``confirm`` raise DejamqError; see ``Mastership``."""

    def check(self) -> None: ...
    def confirm(self) -> None: ...
    def holds(self) -> bool: ...


class NoFence:
    """Nothing stands against storing: nobody else can become master by itself."""

    def check(self) -> None: ...
    def confirm(self) -> None: ...

    def holds(self) -> bool:
        return True
