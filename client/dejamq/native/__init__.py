"""The steps that every message passes, sent or received: compiled where the installation found a C compiler.

The compiled steps raise and log nothing: ``_native.c`` takes plainly fit messages and declines the rest. Declined
messages go the usual way (``unique_id.py``, ``message.py``, ``intake.py``, ``sender.py``, ``received.py``), the only
way without the extension. ``Permutation`` and ``stretches`` are complete, and do the same as ``permutation.py``.

Modules with the Python twins import it. Enter at ``_native.pyi``.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dejamq_proto.native import compiled

COMPILED = compiled("dejamq.native._native")

Take = Callable[[object, str], Any]
"""The future of a message that is sent in this mode; None declines it."""


def declined(_: object, __: str) -> None:
    """The answer to every message before a producer starts, and where nothing is compiled."""


if TYPE_CHECKING or COMPILED:
    from dejamq.native._native import (
        BodyProperty,
        IdProperty,
        IdSource,
        Layout,
        MessageCheck,
        Permutation,
        Shortcut,
        Tally,
        stretches,
    )
else:
    from dejamq.native.permutation import Permutation, stretches

    IdSource = None
    BodyProperty = IdProperty = property

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
    "COMPILED", "BodyProperty", "IdProperty", "IdSource", "Layout", "MessageCheck", "Permutation", "Shortcut",
    "Take", "Tally", "declined", "stretches",
]  # fmt: skip
