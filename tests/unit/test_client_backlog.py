"""The producer's backlog: when it refuses, and when it says that there is room again."""

import asyncio

import pytest
from dejamq import BacklogFull
from dejamq.sending.backlog import Backlog


def test_an_empty_backlog_takes_any_size() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(1, 5_000)
    with pytest.raises(BacklogFull, match="max_pending_bytes is 100"):
        backlog.take(1, 1)


def test_what_is_refused_is_not_counted() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(2, 90)
    with pytest.raises(BacklogFull):
        backlog.take(1, 20)
    assert (backlog.calls, backlog.bytes) == (2, 90)
    backlog.take(1, 10)


async def test_room_is_there_when_half_is_free() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(10, 100)
    waiting = asyncio.ensure_future(backlog.room())
    for _ in range(4):
        backlog.give_back(1, 10)
        await asyncio.sleep(0)
    assert not waiting.done()
    backlog.give_back(1, 10)
    await waiting


async def test_room_for_a_large_message_waits_until_that_one_fits() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(4, 40)
    with pytest.raises(BacklogFull):
        backlog.take(1, 80)
    waiting = asyncio.ensure_future(backlog.room())
    backlog.give_back(1, 10)
    await asyncio.sleep(0)
    assert not waiting.done()
    backlog.give_back(1, 10)
    await waiting
    backlog.take(1, 80)


async def test_a_message_beyond_the_limit_is_taken_when_nothing_else_waits() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(1, 40)
    with pytest.raises(BacklogFull):
        backlog.take(1, 500)
    waiting = asyncio.ensure_future(backlog.room())
    await asyncio.sleep(0)
    backlog.give_back(1, 40)
    await waiting
    backlog.take(1, 500)


async def test_the_end_waits_for_all_and_a_cancelled_waiter_disturbs_nobody() -> None:
    backlog = Backlog(100, call_bytes=0)
    backlog.take(2, 20)
    first, second = asyncio.ensure_future(backlog.end()), asyncio.ensure_future(backlog.end())
    await asyncio.sleep(0)
    first.cancel()
    backlog.give_back(1, 10)
    await asyncio.sleep(0)
    assert not second.done()
    backlog.give_back(1, 10)
    await second


def test_what_a_call_takes_beside_its_record_counts_as_well() -> None:
    backlog = Backlog(1_000, call_bytes=400)
    backlog.take(2, 200)
    assert backlog.bytes == 1_000
    with pytest.raises(BacklogFull):
        backlog.take(1, 1)
    backlog.give_back(1, 100)
    assert backlog.bytes == 500
    backlog.give_back(1, 100)
    assert (backlog.calls, backlog.bytes) == (0, 0)
