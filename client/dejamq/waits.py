"""Waiting for whatever comes first: one of several events, the end of some work, or a moment."""

import asyncio


async def first_of(*events: asyncio.Event) -> None:
    """Until one of them is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def first_done(work: asyncio.Future[None], event: asyncio.Event) -> None:
    """Until the work is done or the event set; the work goes on."""
    wait = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((work, wait), return_when=asyncio.FIRST_COMPLETED)
    finally:
        wait.cancel()


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Until the event is set, at most so long; whether it was set. No time is given when ``seconds`` is not above 0."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            return await event.wait()
    except TimeoutError:
        return False
