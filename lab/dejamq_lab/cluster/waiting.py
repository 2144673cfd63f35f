"""Waiting for a condition with a deadline."""

import asyncio
import time
from collections.abc import Awaitable, Callable

POLL_S = 0.02


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until the condition holds; False when it did not in time."""

    async def holds() -> bool:
        return condition()

    return await until_async(holds, timeout_s)


async def until_async(condition: Callable[[], Awaitable[bool]], timeout_s: float) -> bool:
    """As ``until``, for a condition that has to be asked for."""
    deadline = time.monotonic() + timeout_s
    while True:
        if await condition():
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
