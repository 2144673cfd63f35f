"""The steps that every message passes, sent or received: compiled where the installation found a C compiler.

What is here says nothing and refuses nothing: ``_native.c`` takes what is plainly fit and declines the rest, which goes
the usual way (``unique_id.py``, ``message.py``, ``intake.py``, ``sender.py``, ``received.py``), without the extension
the only one. ``Order`` and ``stretches`` are whole, and the same as those of ``order.py``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dejamq_proto.compiled import compiled

COMPILED = compiled("dejamq._native")

Take = Callable[[object, str], Any]
"""The future of a message that is sent in this mode; None declines it."""


def declined(_: object, __: str) -> None:
    """The answer to every message before a producer starts, and where nothing is compiled."""


if TYPE_CHECKING or COMPILED:
    from dejamq._native import (
        BodyProperty,
        Columns,
        IdProperty,
        IdSource,
        Layout,
        MessageCheck,
        Order,
        Shortcut,
        Tally,
        stretches,
    )
else:
    from dejamq.order import Order, stretches

    IdSource = None
    BodyProperty = IdProperty = property

    class Columns:
        """Declines all messages."""

        def __init__(self, *_: object) -> None: ...

        def of(self, _: object) -> None: ...

    class Layout:
        """Leaves every body and id to the properties' functions."""

        def lay(self, *_: object) -> None: ...

    class MessageCheck:
        """Leaves every message to the slow way."""

        def __new__(cls, slow: Callable[[Any], None], _: object) -> Callable[[Any], None]:
            return slow

    class Tally:
        """How much a producer has taken on."""

        bytes = calls = 0

    class Shortcut:
        """Declines everything."""

        def __init__(self, *_: object) -> None: ...

        def open(self, *_: object) -> None: ...

        def learn(self, *_: object) -> None: ...

        def close(self) -> None: ...

        take = staticmethod(declined)


__all__ = [
    "COMPILED", "BodyProperty", "Columns", "IdProperty", "IdSource", "Layout", "MessageCheck", "Order", "Shortcut",
    "Take", "Tally", "declined", "stretches",
]  # fmt: skip
