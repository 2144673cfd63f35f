"""Waiting for whatever comes first."""

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
