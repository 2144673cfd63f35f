"""RocketMQ's DataVersion: how a table's generations are told apart, in files and at the name server."""

import msgspec


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """Equal only when all three are. ``timestamp`` is the wall clock of the change, ms.

    A name server compares what a broker registers with what it knows by equality alone: a broker whose clock
    went back is still seen to have changed, because the counter differs.
    """

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> "DataVersion":
        """The version of the next change."""
        return DataVersion(self.counter + 1, self.state_version, now_ms)
