"""Runs that waited too long are refused and not stored: how long they waited, and who is told what."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from broker_wire import a_run
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.paths.send_intake import PENDING_ANSWERS, PENDING_REFUSALS, StreamIntake
from dejamq_broker.writing.fast_failure import IDLE_TICK_MS, TICK_MS, Arrivals, FastFailure, Stalls
from dejamq_proto.codes import Code, DejamqError

LONG_MS = 300


def fast(**settings: Any) -> FastFailure:
    return FastFailure(BrokerConfig(**settings))


def stand_still(ms: float) -> None:
    """Keep the loop from its work, as a slow disk does."""
    time.sleep(ms / 1000)


def test_a_run_arrived_as_early_as_the_quickest_one_would_have() -> None:
    arrivals = Arrivals()
    assert arrivals.of(1000, 50_000) == 50_000
    assert arrivals.of(1100, 50_100) == 50_100
    assert arrivals.of(1200, 50_700) == 50_200
    assert arrivals.of(1300, 50_290) == 50_290
    assert arrivals.of(1400, 50_400) == 50_390


def test_a_client_that_does_not_tell_when_it_sent_is_believed_to_have_sent_now() -> None:
    assert Arrivals().of(0, 77) == 77


def test_a_loop_that_ticks_never_stood_still() -> None:
    stalls = Stalls(0)
    for now_ms in range(0, 1000, TICK_MS):
        stalls.tick(now_ms)
    assert stalls.within(0, 1000) == 0


def test_only_the_part_of_a_stall_after_the_arrival_counts() -> None:
    stalls = Stalls(0)
    stalls.tick(10)
    stalls.tick(1010)
    assert stalls.within(0, 1010) == 1000
    assert stalls.within(710, 1010) == 300
    assert stalls.within(1011, 1020) == 0


def test_a_stall_that_no_tick_has_ended_counts_until_now() -> None:
    stalls = Stalls(0)
    assert stalls.within(100, 400) == 300


def test_a_loop_that_promised_to_come_later_did_not_stand_still_until_then() -> None:
    stalls = Stalls(0)
    stalls.tick(0, IDLE_TICK_MS)
    assert stalls.within(0, IDLE_TICK_MS) == 0
    assert stalls.within(50, IDLE_TICK_MS + 100) == 150
    stalls.tick(IDLE_TICK_MS + 100)
    assert stalls.within(50, IDLE_TICK_MS + 100) == 150
    assert stalls.within(IDLE_TICK_MS + 101, IDLE_TICK_MS + 101 + TICK_MS) == 0


def test_stalls_one_after_the_other_add_up() -> None:
    stalls = Stalls(0)
    for now_ms in (100, 200, 300):
        stalls.tick(now_ms)
    assert stalls.within(50, 300) == 250


async def test_a_run_that_came_before_the_loop_stood_still_is_refused_as_surely_not_done() -> None:
    late = fast(wait_time_in_send_queue_ms=200)
    arrived_ms = late.now_ms()
    stand_still(LONG_MS)
    with pytest.raises(DejamqError, match=r"^\[TIMEOUT_CLEAN_QUEUE\]broker busy.* period in queue: \d{3}ms") as refused:
        late.check_arrived(arrived_ms)
    assert refused.value.code == Code.SYSTEM_BUSY
    assert refused.value.not_done
    assert refused.value.retriable


async def test_a_run_that_came_after_it_is_taken() -> None:
    late = fast(wait_time_in_send_queue_ms=200)
    stand_still(LONG_MS)
    late.check_arrived(late.now_ms())


async def test_a_run_behind_an_append_that_stood_at_the_disk_is_told_so() -> None:
    late = fast(wait_time_in_send_queue_ms=200, os_page_cache_busy_timeout_ms=250)
    arrived_ms = late.now_ms()
    stand_still(LONG_MS)
    late.appended(LONG_MS)
    with pytest.raises(DejamqError, match=r"^\[PCBUSY_CLEAN_QUEUE\]broker busy"):
        late.check_arrived(arrived_ms)


async def test_without_fast_failure_nothing_is_late() -> None:
    late = fast(broker_fast_failure_enable=False)
    arrived_ms = late.now_ms()
    stand_still(LONG_MS)
    late.check_arrived(arrived_ms)
    assert late.patience_ms() is None


async def test_the_loop_is_looked_at_until_it_is_closed() -> None:
    late = fast()
    late.start()
    await asyncio.sleep(2 * IDLE_TICK_MS / 1000)
    arrived_ms = late.now_ms()
    stand_still(LONG_MS)
    await asyncio.sleep(2 * IDLE_TICK_MS / 1000)
    with pytest.raises(DejamqError, match="TIMEOUT_CLEAN_QUEUE"):
        late.check_arrived(arrived_ms)
    await late.close()
    await late.close()


async def test_the_loop_is_looked_at_less_often_while_no_runs_come(monkeypatch: pytest.MonkeyPatch) -> None:
    late, looks = fast(), list[float]()
    stalls = SimpleNamespace(tick=lambda now_ms, next_ms: looks.append(next_ms), within=lambda since_ms, now_ms: 0)
    monkeypatch.setattr(late, "_stalls", stalls)
    for runs in (0, 0, 1, 0):
        for _ in range(runs):
            late.check_arrived(late.now_ms())
        late.start()
        await late.close()
    assert looks == [IDLE_TICK_MS, IDLE_TICK_MS, TICK_MS, IDLE_TICK_MS]


async def test_a_run_that_waits_too_long_for_others_is_refused_and_the_next_is_taken_when_there_is_room() -> None:
    late = fast(wait_time_in_send_queue_ms=20)
    with StreamIntake(late).open() as intake:
        for _ in range(PENDING_ANSWERS):
            assert await intake.enter(100) is None
        refusal = await intake.enter(100)
        assert refusal is not None
        assert str(refusal).startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
        assert refusal.not_done
        assert late.waiting == PENDING_ANSWERS + 1
        intake.answered()
        assert await intake.enter(100) is None
    assert late.waiting == 0


async def test_a_run_gets_the_room_that_is_made_while_it_waits() -> None:
    with StreamIntake(fast(wait_time_in_send_queue_ms=10_000)).open() as intake:
        for _ in range(PENDING_ANSWERS):
            await intake.enter(100)
        asyncio.get_running_loop().call_later(0.01, intake.answered)
        assert await intake.enter(100) is None


async def test_a_client_that_reads_no_answers_is_not_read_from_for_ever() -> None:
    with StreamIntake(fast(wait_time_in_send_queue_ms=1)).open() as intake:
        for _ in range(PENDING_ANSWERS + PENDING_REFUSALS):
            await intake.enter(100)
        more = asyncio.ensure_future(intake.enter(100))
        done, _ = await asyncio.wait((more,), timeout=0.1)
        assert not done
        for _ in range(PENDING_ANSWERS + 1):
            intake.answered()
        await more


async def test_more_runs_than_may_wait_are_refused_as_overload() -> None:
    late = fast(send_queue_capacity=2)
    with StreamIntake(late).open() as intake:
        for _ in range(2):
            await intake.enter(100)
            intake.check(a_run("t", [b"x"]))
        await intake.enter(100)
        with pytest.raises(DejamqError, match=r"^\[OVERLOAD\]system busy") as refused:
            intake.check(a_run("t", [b"x"]))
        assert refused.value.not_done


async def test_more_bytes_than_may_wait_are_refused_at_once() -> None:
    late = fast(send_queue_max_bytes=1000)
    with StreamIntake(late).open() as intake, StreamIntake(late).open() as other:
        for each in (intake, other):
            for _ in range(PENDING_ANSWERS):
                await each.enter(100)
        waiting = asyncio.ensure_future(intake.enter(900))
        await asyncio.sleep(0)
        refusal = await other.enter(200)
        assert str(refusal).startswith("[OVERLOAD]")
        intake.answered()
        assert await waiting is None
