"""The watch over a loop: who is told that it stood still."""

import asyncio
import gc
import weakref

import pytest
from consumer_fakes import until
from dejamq.net.watchdog import GAP_MS, WATCH_MS, Watchdog, watchdog

LONG_S = (GAP_MS + WATCH_MS) / 1000 + 0.1


def stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the loop jumps, as it does for a loop that stood still."""
    loop = asyncio.get_running_loop()
    real = loop.time
    monkeypatch.setattr(loop, "time", lambda: real() + LONG_S)


async def test_all_clients_of_a_loop_are_told_by_one_watch_how_long_it_stood_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first: list[int] = []
    second: list[int] = []
    dog = watchdog()
    assert watchdog() is dog
    began_s = asyncio.get_running_loop().time()
    dog.tell(first.append)
    dog.tell(second.append)
    stand_still(monkeypatch)
    await until(lambda: first)
    assert first == second
    assert GAP_MS <= first[0] <= (asyncio.get_running_loop().time() - began_s) * 1000
    dog.forget(first.append)
    dog.forget(second.append)


async def test_a_client_that_left_and_one_that_came_later_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[int] = []
    late: list[int] = []
    stayed: list[int] = []
    dog = watchdog()
    told, told_late, told_all = gone.append, late.append, stayed.append
    dog.tell(told)
    dog.tell(told_all)
    stand_still(monkeypatch)
    dog.forget(told)
    dog.tell(told_late)
    await until(lambda: stayed)
    assert (gone, late) == ([], [])
    dog.forget(told_late)
    dog.forget(told_all)


def test_a_loop_that_ends_before_its_clients_takes_its_watch_along() -> None:
    kept: list[weakref.ref[Watchdog]] = []

    async def watched() -> None:
        dog = watchdog()
        dog.tell(lambda missing_ms: None)
        kept.append(weakref.ref(dog))

    asyncio.run(watched())
    gc.collect()
    assert kept[0]() is None
