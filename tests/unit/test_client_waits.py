"""Waiting for the first of several things, which leaves nothing behind."""

import asyncio

import pytest
from dejamq.waits import driven_by, first_done, first_of, telling


async def others() -> set["asyncio.Task[object]"]:
    await asyncio.sleep(0)  # those that were cancelled end
    return asyncio.all_tasks() - {asyncio.current_task()}


async def test_the_first_event_ends_the_wait_and_nobody_waits_on() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    waiting = asyncio.ensure_future(first_of(first, second))
    await asyncio.sleep(0)
    assert not waiting.done()
    second.set()
    await waiting
    assert not await others()


async def test_a_wait_that_is_cancelled_takes_its_own_waits_along() -> None:
    waiting = asyncio.ensure_future(first_of(asyncio.Event(), asyncio.Event()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not await others()


async def test_work_goes_on_when_the_event_comes_first() -> None:
    go_on, event = asyncio.Event(), asyncio.Event()

    async def job() -> None:
        await go_on.wait()

    work = asyncio.ensure_future(job())
    event.set()
    await first_done(work, event)
    assert not work.done()
    go_on.set()
    await first_done(work, asyncio.Event())
    assert work.done()
    assert not await others()


async def test_who_shows_where_tasks_wait_sees_through_a_telling() -> None:
    async def job() -> None:
        await asyncio.sleep(0)

    work = job()
    waiting = telling(work, lambda: None)
    assert driven_by(waiting) is work
    assert driven_by(work) is None
    await waiting
