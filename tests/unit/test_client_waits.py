"""Waits that come again and again: how long they are, and which of them end together."""

import asyncio

import pytest
from dejamq.waits import STEP_S, STEPS, together


@pytest.mark.parametrize("seconds", [0.25, 0.5, 5, 20, 30])
async def test_a_wait_with_others_is_as_long_as_it_should_be_to_a_hundredth(seconds: float) -> None:
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert abs(together(seconds) - seconds) <= min(STEP_S, seconds / STEPS) / 2 + 1e-6


async def test_waits_that_begin_a_few_milliseconds_apart_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    def ends(now_s: float, seconds: float) -> float:
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: now_s)
            return now_s + together(seconds)

    assert [round(ends(1000.06 + part, 5), 6) for part in (0, 0.003, 0.08)] == [1005.1] * 3
    assert round(ends(1000.16, 20), 6) == 1020.2
    assert round(ends(1000.003, 0.25), 6) == 1000.255


async def test_a_wait_after_a_wait_keeps_the_interval() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(together(0.2))
    began = loop.time()
    for _ in range(3):
        await asyncio.sleep(together(0.2))
    assert 0.59 < loop.time() - began < 0.7


async def test_no_time_to_wait_stays_none() -> None:
    assert together(0) == 0
    assert together(-1) == -1
