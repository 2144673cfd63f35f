"""RocketMQ's DataVersion: it distinguishes a table's generations, in files and at the name server."""

from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Java's number: JSON could hold any, which no protocol could tell."""


class TableVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Equal only when all three are. ``timestamp`` is the wall clock of the change, ms.

    A name server compares a broker's registration with its own table by equality alone. So it sees a change even when
    the broker's clock went back, because the counter differs.
    """

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next(self, now_ms: int) -> "TableVersion":
        """The version of the next change."""
        return TableVersion(self.counter + 1, self.state_version, now_ms)
