"""``dejamq.run``: several clients of one program start, serve and end together."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, runtime_checkable

from dejamq.clients.signals import STOP_SIGNALS, StopSignals


class Client(Protocol):
    """Any client: ``async with`` starts and drains it."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class Stoppable(Protocol):
    """A client that can end by itself: stopped by the program, or failed."""

    async def wait_stopped(self) -> None: ...


@runtime_checkable
class Hurried(Protocol):
    """A client whose closing can be cut short."""

    def hurry(self) -> None: ...


async def run(*clients: Client, signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
    """Start the clients in order, serve until a signal comes or one of them stops or fails, drain them in reverse.

    A producer that handlers use comes first, so that it ends last. A second signal ends the wait for handlers.
    Raises the fatal failure of a client.
    """
    with StopSignals(signals) as asked:
        hurrying = asyncio.ensure_future(_hurry(asked, clients))
        try:
            async with AsyncExitStack() as stack:
                for client in clients:
                    await stack.enter_async_context(client)
                await _stopped(asked, clients)
        finally:
            hurrying.cancel()


async def _stopped(asked: StopSignals, clients: Sequence[Client]) -> None:
    """Until a signal came, or one of the clients stopped or failed."""
    waits = [asyncio.ensure_future(client.wait_stopped()) for client in clients if isinstance(client, Stoppable)]
    waits.append(asyncio.ensure_future(_wait(asked.stopped)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _hurry(asked: StopSignals, clients: Sequence[Client]) -> None:
    """Let the clients' closing wait no longer, once a second signal came."""
    await _wait(asked.hurried)
    for client in clients:
        if isinstance(client, Hurried):
            client.hurry()
