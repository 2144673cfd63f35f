"""Waiting for whatever comes first: one of several events, the end of some work, or a moment."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any

STEP_S = 0.1
STEPS = 50


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


def aligned_delay(seconds: float) -> float:
    """About so long, to wait for what comes again and again: until a moment at which other waits end as well.

    A process with many idle clients then wakes ten times a second and not for each of their timers. It does in one go
    the work that costs several times as much one by one, with cold caches. The broker that gets the requests saves
    the same. The shift is at most a hundredth of the time, and at most 50 ms, so that intervals keep their order.
    """
    step_s = min(STEP_S, seconds / STEPS)
    if step_s <= 0:
        return seconds
    now_s = asyncio.get_running_loop().time()
    return round((now_s + seconds) / step_s) * step_s - now_s


@coroutine
def before_each_suspension(
    work: Coroutine[Any, Any, None], before_wait: Callable[[], None]
) -> Generator[Any, Any, None]:
    """Await ``work``; ``before_wait`` is called each time before it lets others run.

    Work before the first wait needs no upkeep that others could see, and work that never waits pays nothing for this.
    """
    step: Callable[[Any], Any] = work.send
    given: Any = None
    try:
        while True:
            awaited = step(given)
            before_wait()
            try:
                given, step = (yield awaited), work.send
            except BaseException as error:  # whatever it is, it is the work's: a cancellation, or the end of the loop
                given, step = error, work.throw
    except StopIteration:
        return


def ends_task(error: BaseException, task: "asyncio.Task[Any] | None") -> bool:
    """Whether the task itself ends by what it caught: somebody cancelled it, or its coroutine is closed unfinished.

    Anything else came out of what the task awaited, a cancellation too.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) and running_task() is not task


def running_task() -> "asyncio.Task[Any] | None":
    """The task that runs now; None outside tasks and loops."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def driven_by(waiting: object) -> object:
    """The work that a ``before_each_suspension`` drives, to show where tasks wait. None: ``waiting`` drives none."""
    frame = getattr(waiting, "gi_frame", None)
    return frame.f_locals["work"] if frame is not None and frame.f_code is before_each_suspension.__code__ else None
