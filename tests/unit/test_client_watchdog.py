"""The watch over a loop: who is told that it stood still."""

import asyncio
import gc
import time
import weakref

from dejamq.watchdog import GAP_MS, WATCH_MS, Watchdog, watchdog

LONG_S = (GAP_MS + WATCH_MS) / 1000 + 0.1


async def test_all_clients_of_a_loop_are_told_by_one_watch_how_long_it_stood_still() -> None:
    first: list[int] = []
    second: list[int] = []
    dog = watchdog()
    assert watchdog() is dog
    dog.tell(first.append)
    dog.tell(second.append)
    time.sleep(LONG_S)  # noqa: ASYNC251  # the loop shall stand still
    await asyncio.sleep(0.01)
    assert len(first) == 1
    assert first == second
    assert GAP_MS <= first[0] <= LONG_S * 1000
    dog.forget(first.append)
    dog.forget(second.append)


async def test_a_client_that_left_and_one_that_came_later_are_not_told() -> None:
    gone: list[int] = []
    late: list[int] = []
    dog = watchdog()
    told, told_late = gone.append, late.append
    dog.tell(told)
    time.sleep(LONG_S)  # noqa: ASYNC251  # the loop shall stand still
    dog.forget(told)
    dog.tell(told_late)
    await asyncio.sleep(0.01)
    await asyncio.sleep(WATCH_MS / 1000 + 0.1)
    assert (gone, late) == ([], [])
    dog.forget(told_late)


def test_a_loop_that_ends_before_its_clients_takes_its_watch_along() -> None:
    kept: list[weakref.ref[Watchdog]] = []

    async def watched() -> None:
        dog = watchdog()
        dog.tell(lambda missing_ms: None)
        kept.append(weakref.ref(dog))

    asyncio.run(watched())
    gc.collect()
    assert kept[0]() is None
