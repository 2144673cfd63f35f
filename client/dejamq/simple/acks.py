"""Acknowledgements on their way to one broker: those that come while a call is under way leave together in the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from dejamq_proto.codes import DejamqError

MOST_TOGETHER = 1024
"""Receipt handles of one call."""
Outcomes = list[DejamqError | None]


class Acks:
    """Owned by the event loop. An idle one adds no delay, a busy one makes few calls."""

    def __init__(self, call: Callable[[Sequence[str]], Awaitable[Outcomes]]) -> None:
        """``call`` tells the broker: the outcome of each handle."""
        self._call = call
        self._waiting: list[tuple[Sequence[str], asyncio.Future[Outcomes]]] = []
        self._running: asyncio.Task[None] | None = None

    async def tell(self, handles: Sequence[str]) -> Outcomes:
        """The outcome of each. Raises what its call failed with."""
        if len(handles) > MOST_TOGETHER:
            parts = [handles[at : at + MOST_TOGETHER] for at in range(0, len(handles), MOST_TOGETHER)]
            return [outcome for part in parts for outcome in await self.tell(part)]
        told: asyncio.Future[Outcomes] = asyncio.get_running_loop().create_future()
        self._waiting.append((handles, told))
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())
        return await told

    def close(self) -> None:
        """Whoever waits is cancelled. May be called twice."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        """Until nobody waits."""
        leaving: list[tuple[Sequence[str], asyncio.Future[Outcomes]]] = []
        try:
            while self._waiting:
                leaving = self._together()
                await self._leave(leaving)
        finally:
            self._running = None
            for _, told in (*leaving, *self._waiting):
                told.cancel()
            self._waiting.clear()

    def _together(self) -> list[tuple[Sequence[str], asyncio.Future[Outcomes]]]:
        """As many of the first as fit into one call."""
        count = size = 0
        for handles, _ in self._waiting:
            size += len(handles)
            if size > MOST_TOGETHER:
                break
            count += 1
        leaving, self._waiting = self._waiting[:count], self._waiting[count:]
        return leaving

    async def _leave(self, leaving: Sequence[tuple[Sequence[str], asyncio.Future[Outcomes]]]) -> None:
        try:
            outcomes = await self._call([handle for handles, _ in leaving for handle in handles])
        except Exception as error:
            for _, told in leaving:
                if not told.done():
                    told.set_exception(error)
            return
        at = 0
        for handles, told in leaving:
            if not told.done():
                told.set_result(outcomes[at : at + len(handles)])
            at += len(handles)
