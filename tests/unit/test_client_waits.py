"""Waits that come again and again: how long they are, and which of them end together."""

import asyncio

import pytest
from dejamq.net.waits import STEP_S, STEPS, aligned_delay, ends_task


@pytest.mark.parametrize("seconds", [0.25, 0.5, 5, 20, 30])
async def test_a_wait_with_others_is_as_long_as_it_should_be_to_a_hundredth(seconds: float) -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert abs(aligned_delay(seconds) - seconds) <= min(STEP_S, seconds / STEPS) / 2 + 1e-6


async def test_waits_that_begin_a_few_milliseconds_apart_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    def ends(now_s: float, seconds: float) -> float:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: now_s)
            return now_s + aligned_delay(seconds)

    assert [round(ends(1000.06 + part, 5), 6) for part in (0, 0.003, 0.08)] == [1005.1] * 3
    assert round(ends(1000.16, 20), 6) == 1020.2
    assert round(ends(1000.003, 0.25), 6) == 1000.255


async def test_a_wait_after_a_wait_keeps_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when each wait ends a little late."""
    now_s = 1000.0613
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    now_s += aligned_delay(0.2)
    began_s = now_s
    for late_s in (0.0017, 0.0009, 0):
        now_s += aligned_delay(0.2) + late_s
    assert now_s - began_s == pytest.approx(0.6)


async def test_no_time_to_wait_stays_none() -> None:
    assert aligned_delay(0) == 0
    assert aligned_delay(-1) == -1


async def test_a_task_ends_by_its_own_cancellation_and_not_by_one_that_it_awaited() -> None:
    told: list[bool] = []

    async def work(wait: "asyncio.Future[None]") -> None:
        task = asyncio.current_task()
        try:
            await wait
        except BaseException as error:
            told.append(ends_task(error, task))

    loop = asyncio.get_running_loop()
    inner, outer = loop.create_future(), loop.create_future()
    awaiting = [loop.create_task(work(inner)), loop.create_task(work(outer))]
    await asyncio.sleep(0)
    inner.cancel()
    awaiting[1].cancel()
    await asyncio.wait(awaiting)
    assert told == [False, True]


async def test_a_handler_that_raises_what_closed_coroutines_get_does_not_end_its_task() -> None:
    assert not ends_task(GeneratorExit(), asyncio.current_task())


def test_a_task_ends_by_the_close_of_its_coroutine() -> None:
    told: list[bool] = []

    async def work() -> None:
        task = asyncio.current_task()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            told.append(ends_task(error, task))
            raise

    loop, coroutine = asyncio.new_event_loop(), work()
    left = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    coroutine.close()
    loop.run_until_complete(asyncio.wait((left,), timeout=0))
    loop.close()
    assert told == [True]
