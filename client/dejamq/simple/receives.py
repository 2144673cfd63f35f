"""Receives on their way to one broker: those that come while a call is under way leave together in the next."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dejamq.receiving.received import ReceivedMessage

MOST_TOGETHER = 1024
"""Messages of one call: the broker's limit."""
GATHER_S = 0.01
"""A call without an answer by then is one that the broker holds, and no other receive waits for it any longer."""


class _Asked(msgspec.Struct, eq=False):
    """One receive that has no answer yet."""

    most: int
    until_s: float
    told: asyncio.Future[list[ReceivedMessage]]

    @property
    def wait_ms(self) -> int:
        return max(0, int(1000 * (self.until_s - time.monotonic())))


class Receives:
    """Owned by the event loop. An idle one adds no delay, a busy one makes few calls.

    All receives want the same messages, for the same invisible time. What a call brings is theirs in the order in
    which they came.
    """

    def __init__(
        self, call: Callable[[int, int], Awaitable[list[ReceivedMessage]]],
        spare: Callable[[Sequence[ReceivedMessage]], None],
    ) -> None:  # fmt: skip
        """``call`` asks the broker for so many messages, and lets it wait for so many ms.

        ``spare`` takes messages of receives that were cancelled meanwhile.
        """
        self._call, self._spare = call, spare
        self._waiting: list[_Asked] = []
        self._calls: set[asyncio.Task[None]] = set()
        self._newest: asyncio.Task[None] | None = None
        """The call that others wait for; None: nobody has to wait."""
        self._held: asyncio.TimerHandle | None = None

    async def ask(self, most: int, wait_ms: int) -> list[ReceivedMessage]:
        """``[]`` when none came in time. Raises what its call failed with."""
        told: asyncio.Future[list[ReceivedMessage]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(most, time.monotonic() + wait_ms / 1000, told))
        if self._newest is None:
            self._leave()
        return await told

    def close(self) -> None:
        """Whoever waits is cancelled. May be called twice."""
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.told.cancel()
        for task in tuple(self._calls):
            task.cancel()

    def _leave(self) -> None:
        """Whoever waits now, in one call."""
        leaving = self._together()
        if not leaving:
            return
        loop = asyncio.get_running_loop()
        task = self._newest = loop.create_task(self._run(leaving))
        self._calls.add(task)
        task.add_done_callback(self._ended)
        self._held = loop.call_later(GATHER_S, self._go_on, task)
        for asked in leaving:
            asked.told.add_done_callback(lambda _: _end_unwanted(task, leaving))

    def _together(self) -> list[_Asked]:
        """As many of the first as fit into one call."""
        wanted = [asked for asked in self._waiting if not asked.told.done()]
        count = size = 0
        for asked in wanted:
            size += asked.most
            if size > MOST_TOGETHER:
                break
            count += 1
        self._waiting = wanted[count:]
        return wanted[:count]

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._calls.discard(task)
        self._go_on(task)

    def _go_on(self, task: "asyncio.Task[None]") -> None:
        """Nobody waits for this call any longer."""
        if self._newest not in (task, None):
            return  # whoever waits does so for another one
        if self._held is not None:
            self._held.cancel()
        self._newest = self._held = None
        self._leave()

    async def _run(self, leaving: Sequence[_Asked]) -> None:
        """The call waits no longer than the first of them; who has time left then asks again."""
        try:
            found = await self._call(sum(asked.most for asked in leaving), min(asked.wait_ms for asked in leaving))
        except asyncio.CancelledError:
            for asked in leaving:
                asked.told.cancel()
            raise
        except Exception as error:
            for asked in leaving:
                if not asked.told.done():
                    asked.told.set_exception(error)
            return
        again: list[_Asked] = []
        for asked in leaving:
            if asked.told.done():
                continue
            mine, found = found[: asked.most], found[asked.most :]
            if mine or not asked.wait_ms:
                asked.told.set_result(mine)
            else:
                again.append(asked)
        self._waiting = again + self._waiting
        if found:
            self._spare(found)


def _end_unwanted(task: "asyncio.Task[None]", leaving: Sequence[_Asked]) -> None:
    """A broker gives nothing to a call that was given up while it waited."""
    if all(asked.told.cancelled() for asked in leaving):
        task.cancel()
