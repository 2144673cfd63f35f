"""Sends that wait for the disk longer than their broker allows."""

import asyncio
import gc
from concurrent.futures import Future
from typing import Any

from dejamq_broker.paths.confirmation import _wait


async def test_a_disk_that_fails_after_the_time_out_leaves_no_unread_failure() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    durable: Future[None] = Future()
    assert "within 0.001 s" in await _wait(durable, 0.001)
    durable.set_exception(OSError("no space"))
    for _ in range(3):
        await asyncio.sleep(0)
    del durable
    gc.collect()
    assert complaints == []
