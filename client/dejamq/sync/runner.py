"""``dejamq.sync.run``: several blocking clients of one program start, serve and end together."""

import asyncio
import signal
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from dejamq.clients.runner import Hurried
from dejamq.clients.runner import run as run_async
from dejamq.clients.signals import STOP_SIGNALS
from dejamq.sync.facade import Facade
from dejamq.sync.loop_thread import loop_thread
from dejamq.sync.push_consumer import Signals


class _Until:
    """A client that does nothing and stops when it is told: the signal, for clients that cannot stop themselves."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def wait_stopped(self) -> None:
        await self.told.wait()

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def run(*clients: Facade[Any], signals: Sequence[signal.Signals] = STOP_SIGNALS) -> None:
    """Start the clients in order, serve until a signal comes or one of them stops or fails, drain them in reverse.

    A producer that handlers use comes first, so that it ends last. A second signal ends the wait for handlers.
    Raises the fatal failure of a client, and ConfigError outside the main thread unless ``signals=()``.
    """
    until, inners = _Until(), [client.start_later() for client in clients]
    thread = loop_thread()

    def hurry() -> None:
        for inner in inners:
            if isinstance(inner, Hurried):
                inner.hurry()

    with Signals(signals, lambda: thread.soon(until.told.set), lambda: thread.soon(hurry)):
        thread.call(run_async, until, *inners, signals=())
    for client in clients:
        client.close()
