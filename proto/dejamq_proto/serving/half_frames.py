"""Frames of which a part has come: bounded over all connections of a door, so that strangers do not fill the memory."""

import asyncio
from typing import NamedTuple, Protocol

HALF_FRAME_S = 60.0
"""A frame has this time from its first byte to its last. RocketMQ's clients wait for an answer for 3 to 15 s."""
MOST_HALF_BYTES = 256 << 20
"""Of unfinished frames of all connections together."""


class FrameConnection(Protocol):
    """One that brings frames."""

    def give_up(self, reason: str) -> None:
        """End it at once."""


class _Half(NamedTuple):
    bytes: int
    begun_s: float


class HalfFrames:
    """The unfinished frames of all connections: their bytes have a budget together, and each has a limit of time.

    Over the budget the connection with the oldest one ends. So a client that stalls makes room for those that go on.
    Owned by the event loop.
    """

    def __init__(self) -> None:
        self._halves: dict[FrameConnection, _Half] = {}
        """The one that began first is in front."""
        self.bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, connection: FrameConnection, held: int, now_s: float, *, new: bool) -> None:
        """So many bytes of this connection are no whole frame. ``new``: another frame than the last time."""
        before = self._halves.get(connection)
        begun_s = now_s if before is None or new else before.begun_s
        if new:
            self._halves.pop(connection, None)
        self._halves[connection] = _Half(held, begun_s)
        self.bytes += held - (before.bytes if before else 0)
        while self.bytes > MOST_HALF_BYTES:
            self._end(next(iter(self._halves)), f"{self.bytes} bytes of unfinished frames are too many")
        if self._halves and self._timer is None:
            self._look_at(now_s)

    def forget(self, connection: FrameConnection) -> None:
        """It has no unfinished frame."""
        half = self._halves.pop(connection, None)
        if half is not None:
            self.bytes -= half.bytes

    def close(self) -> None:
        """No connection is left."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, connection: FrameConnection, reason: str) -> None:
        self.forget(connection)
        connection.give_up(reason)

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._timer = None
        for connection, half in list(self._halves.items()):
            if now_s - half.begun_s < HALF_FRAME_S:
                break
            self._end(connection, f"its frame is not whole after {HALF_FRAME_S:g} s")
        if self._halves:
            self._look_at(now_s)

    def _look_at(self, now_s: float) -> None:
        first = next(iter(self._halves.values()))
        delay_s = max(first.begun_s + HALF_FRAME_S - now_s, 0.0)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)
