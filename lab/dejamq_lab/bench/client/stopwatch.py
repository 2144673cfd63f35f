"""The moments between which a client process measures itself."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from dejamq_lab.bench.client.result import Span, percentiles

STAMP_BYTES = 8
"""A body that tells its latency begins with the moment before it was sent."""

Gate = Callable[[], Any]
"""Awaited by a client that is ready; it returns when the measurement begins."""


class Stopwatch:
    """Begins with ``start``; the clock is the machine's monotonic one, which all its processes share."""

    def __init__(self) -> None:
        self.samples_ms: list[float] = []
        self._began_ns = 0
        self._core_s = 0.0

    def start(self) -> None:
        self._began_ns, self._core_s = time.monotonic_ns(), time.process_time()

    def span(self) -> Span:
        """From the start to now, with the percentiles of ``samples_ms`` where there are any."""
        ended, core = time.monotonic_ns(), time.process_time() - self._core_s
        return Span(self._began_ns, ended, core, *(percentiles(self.samples_ms) if self.samples_ms else ()))


def stamped(body: bytes) -> bytes:
    """The body with this moment at its front."""
    return time.monotonic_ns().to_bytes(STAMP_BYTES, "little") + body[STAMP_BYTES:]


def age_ms(body: bytes) -> float:
    """How long ago a body was stamped."""
    return (time.monotonic_ns() - int.from_bytes(body[:STAMP_BYTES], "little")) / 1e6


async def paced(send: Callable[[int], Any], messages: int, rate: int) -> None:
    """Await ``send(count)`` for what is due at ``rate`` messages a second, in steps of one millisecond."""
    began, sent = time.perf_counter(), 0
    while sent < messages:
        due = min(messages, int((time.perf_counter() - began) * rate))
        if due > sent:
            await send(due - sent)
            sent = due
        await asyncio.sleep(0.001)
