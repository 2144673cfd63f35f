"""Servers that are not measured stand still: a JVM's own timers and collections are nobody's measurement."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable

AWAKE_S = 1.0
"""After they go on, before anything else happens: for what their timers missed, as heartbeats to a controller."""


@contextlib.asynccontextmanager
async def resting(pids: Iterable[int], awake_s: float = AWAKE_S) -> AsyncIterator[None]:
    """These processes are stopped (SIGSTOP) until the end, whatever it is; one that has ended is none of them."""
    stopped = [pid for pid in pids if _signalled(pid, signal.SIGSTOP)]
    try:
        yield
    finally:
        for pid in stopped:
            _signalled(pid, signal.SIGCONT)
    if stopped:
        await asyncio.sleep(awake_s)


def _signalled(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
