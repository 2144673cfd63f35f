"""Producers' answers that wait for slaves: in the order of the log, and none of them for ever."""

import asyncio

from dejamq_broker.replication.master import SlaveWaits
from dejamq_proto.codes import Code

NEVER_MS = 3_600_000


def waits_of(waits: SlaveWaits, *log_ends: int) -> "list[asyncio.Future[Code]]":
    loop = asyncio.get_running_loop()
    futures: list[asyncio.Future[Code]] = [loop.create_future() for _ in log_ends]
    for log_end, future in zip(log_ends, futures, strict=True):
        waits.add(log_end, future)
    return futures


async def test_who_waits_for_no_more_than_is_confirmed_is_answered() -> None:
    waits = SlaveWaits(NEVER_MS)
    first, second, third = waits_of(waits, 100, 200, 300)
    waits.confirm(99)
    assert not first.done()
    waits.confirm(200)
    assert [first.result(), second.result()] == [Code.SUCCESS] * 2
    assert not third.done()
    assert waits
    waits.confirm(10_000)
    assert third.result() == Code.SUCCESS
    assert not waits
    waits.close()


async def test_who_waits_too_long_is_told_so_and_slaves_that_come_later_change_nothing() -> None:
    waits = SlaveWaits(20)
    first, second = waits_of(waits, 100, 200)
    waits.confirm(100)
    assert await second == Code.FLUSH_SLAVE_TIMEOUT
    assert first.result() == Code.SUCCESS
    (third,) = waits_of(waits, 300)  # after all have ended the clock begins anew
    assert await third == Code.FLUSH_SLAVE_TIMEOUT
    waits.confirm(300)
    assert not waits


async def test_an_answer_that_nobody_wants_any_more_stops_no_other() -> None:
    waits = SlaveWaits(NEVER_MS)
    gone, other = waits_of(waits, 100, 200)
    gone.cancel()
    waits.confirm(200)
    assert other.result() == Code.SUCCESS
    waits.close()
    late = SlaveWaits(1)
    gone, other = waits_of(late, 100, 200)
    gone.cancel()
    assert await other == Code.FLUSH_SLAVE_TIMEOUT


async def test_after_the_end_nobody_is_told_that_it_took_too_long() -> None:
    waits = SlaveWaits(1)
    waits.close()  # nobody has waited yet
    (only,) = waits_of(waits, 100)
    waits.close()
    await asyncio.sleep(0.005)
    assert not only.done()
