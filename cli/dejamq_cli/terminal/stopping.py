"""Commands that run until somebody has enough: Ctrl-C, SIGTERM, or a reader that went away."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from dejamq.clients.signals import STOP_SIGNALS, StopSignals
from dejamq_proto.codes import ConfigError


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """The first signal asks for an orderly end, the second for a quick one. Off the main thread no signal comes."""
    asked = StopSignals(STOP_SIGNALS)
    try:
        asked.__enter__()
    except ConfigError:
        yield asked
        return
    try:
        yield asked
    finally:
        asked.__exit__(None, None, None)


async def until(work: Coroutine[Any, Any, None], *stops: asyncio.Event) -> bool:
    """Run ``work`` to its end, or cancel it when one of ``stops`` is set; whether it came to its end. Raises as it
    does.
    """
    working = asyncio.ensure_future(work)
    stopping = [asyncio.ensure_future(_wait(stop)) for stop in stops]
    try:
        await asyncio.wait((working, *stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return True
        return False
    finally:
        for task in (working, *stopping):
            task.cancel()
        await asyncio.gather(working, *stopping, return_exceptions=True)


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()
