"""Counters of one queue since this consumer started: plain sums, cheap to add to."""

import msgspec


class QueueCounts(msgspec.Struct):
    """``pulls`` brought ``pulled`` messages after ``pull_s``; ``calls`` of handlers took ``call_s``, all together."""

    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0
    calls: int = 0
    call_s: float = 0.0
    succeeded: int = 0
    failed: int = 0

    def found(self, messages: int, seconds: float) -> None:
        """A pull brought messages."""
        self.pulls += 1
        self.pulled += messages
        self.pull_s += seconds

    def called(self, calls: int, seconds: float, *, succeeded: int, failed: int = 0) -> None:
        """Handlers ended: so many calls took so long together, for so many messages."""
        self.calls += calls
        self.call_s += seconds
        self.succeeded += succeeded
        self.failed += failed

    def add(self, after: "QueueCounts", before: "QueueCounts") -> None:
        """Add what happened between two moments."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(after, name) - getattr(before, name))

    def copy(self) -> "QueueCounts":
        """This moment's values."""
        return msgspec.structs.replace(self)
