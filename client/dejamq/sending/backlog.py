"""How much a producer has taken on and not finished, and who waits for that to shrink."""

import asyncio

from dejamq_proto.codes import BacklogFull

from dejamq.native import Tally

CALL_BYTES = 400
"""What a send takes in memory beside its record, measured: 240 for message and id, 144 for its future, its places in
columns. Left out, a full backlog of small messages would be several times as large as it says.
"""


class Backlog(Tally):
    """Bytes and calls from submission to their end. Owned by the event loop.

    RocketMQ's counterpart is the back-pressure of async sends (enableBackpressureForAsyncMode: 100 MiB), which
    blocks the caller; here ``submit`` refuses and the program decides whether to wait.
    """

    def __init__(self, max_bytes: int, call_bytes: int = CALL_BYTES) -> None:
        """``call_bytes`` count for each call, whatever its size."""
        self.max_bytes, self.call_bytes = max_bytes, call_bytes
        self.bytes = self.calls = 0
        self._wanted = 0  # what was refused last
        self._for_room: list[asyncio.Future[None]] = []
        self._for_end: list[asyncio.Future[None]] = []

    def take(self, calls: int, size: int) -> None:
        """Count calls in. Raises BacklogFull; an empty backlog takes any size."""
        size += calls * self.call_bytes
        if self.bytes + size > self.max_bytes and self.calls:
            self._wanted = size
            raise BacklogFull(
                f"{self.bytes} bytes wait to be sent, max_pending_bytes is {self.max_bytes}; await drain() first"
            )
        self.bytes += size
        self.calls += calls

    def give_back(self, calls: int, size: int) -> None:
        """Count calls out."""
        size += calls * self.call_bytes
        self.bytes -= size
        self.calls -= calls
        if self._for_room and self.bytes <= self.max_bytes // 2:
            _resolve(self._for_room)
        if self._for_end and not self.calls:
            _resolve(self._for_end)

    async def room(self) -> None:
        """Return when half of the limit is free, and what was refused last fits.

        Sooner, a fast producer would wait for each message.
        """
        while self.calls and (self.bytes > self.max_bytes // 2 or self.bytes + self._wanted > self.max_bytes):
            await self._wait(self._for_room)
        self._wanted = 0

    async def end(self) -> None:
        """Return when nothing waits and nothing is in flight.

        Calls submitted while waiting count too: a program that never stops submitting never sees the end.
        """
        while self.calls:
            await self._wait(self._for_end)

    async def _wait(self, waiters: list[asyncio.Future[None]]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.append(future)
        await future


def _resolve(waiters: list[asyncio.Future[None]]) -> None:
    for future in waiters:
        if not future.done():
            future.set_result(None)
    waiters.clear()
