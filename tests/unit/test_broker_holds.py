"""Held pulls: parked, woken by arrival or deadline exactly once, dropped with their stream."""

import asyncio
import threading

import pytest
from dejamq_broker.paths.long_poll import HeldRequest, HoldTable, LongPoll

T0, T1 = ("t", 0), ("t", 1)


class Calls(list[bool]):
    def hold(self, key: tuple[str, int] = T0, deadline_ms: float = 100, owner: object = None) -> HeldRequest:
        return HeldRequest(key, deadline_ms, self.append, owner)


def test_an_arrival_takes_out_all_holds_of_its_queue_and_no_others() -> None:
    table, calls = HoldTable(), Calls()
    first, second, other = calls.hold(), calls.hold(), calls.hold(T1)
    for hold in (first, second, other):
        table.park(hold)
    assert table.arrived([T0, ("u", 0)]) == [first, second]
    assert table.arrived([T0]) == []
    assert len(table) == 1


@pytest.mark.parametrize(("now_ms", "count"), [(99, 0), (100, 1), (250, 2), (float("inf"), 3)])
def test_a_hold_expires_at_its_deadline(now_ms: float, count: int) -> None:
    table, calls = HoldTable(), Calls()
    for deadline_ms in (300, 100, 200):
        table.park(calls.hold(deadline_ms=deadline_ms))
    assert len(table.expired(now_ms)) == count
    assert len(table) == 3 - count


def test_a_woken_hold_does_not_expire_and_leaves_no_deadline() -> None:
    table, calls = HoldTable(), Calls()
    table.park(calls.hold())
    table.arrived([T0])
    assert table.next_deadline_ms() is None
    assert table.expired(1000) == []


def test_holds_of_a_lost_stream_are_never_woken() -> None:
    table, calls, stream = HoldTable(), Calls(), object()
    table.park(calls.hold(owner=stream))
    kept = calls.hold(owner=object(), deadline_ms=300)
    table.park(kept)
    table.forget(stream)
    assert table.next_deadline_ms() == 300
    assert table.arrived([T0]) == [kept]


def test_many_arrivals_leave_no_heap_of_old_deadlines() -> None:
    table, calls = HoldTable(), Calls()
    for _ in range(10_000):
        table.park(calls.hold())
        table.arrived([T0])
    assert len(table._by_deadline) < 200


def test_many_lost_streams_leave_no_heap_of_old_deadlines() -> None:
    table, calls = HoldTable(), Calls()
    for number in range(1000):
        table.park(calls.hold(owner=number))
        table.forget(number)
    assert len(table._by_deadline) <= 65


async def test_arrivals_told_in_the_loop_wake_at_once() -> None:
    poll, calls = LongPoll(), Calls()
    poll.park(calls.hold(deadline_ms=poll.now_ms() + 60_000))
    poll.on_arrival([T1])
    assert calls == []
    poll.on_arrival([T0])
    assert calls == [False]
    poll.close()


@pytest.mark.parametrize("by", ["arrival", "deadline", "closing"])
async def test_a_hold_that_cannot_be_woken_takes_no_other_with_it(by: str) -> None:
    poll, calls, later = LongPoll(), Calls(), Calls()

    def fails(timed_out: bool) -> None:
        raise RuntimeError(timed_out)

    soon_ms = poll.now_ms() + (1 if by == "deadline" else 60_000)
    poll.park(HeldRequest(T0, soon_ms, fails))
    poll.park(calls.hold(deadline_ms=soon_ms))
    poll.park(later.hold(T1, deadline_ms=poll.now_ms() + 300))
    if by == "arrival":
        poll.on_arrival([T0])
    if by == "closing":
        poll.close()
    async with asyncio.timeout(10):
        while not (calls and later):
            await asyncio.sleep(0.01)
    assert calls == [by != "arrival"]


async def test_arrivals_from_a_thread_wake_on_the_loop() -> None:
    poll, calls = LongPoll(), Calls()
    poll.park(calls.hold(deadline_ms=poll.now_ms() + 60_000))
    woken_in: list[int] = []
    poll.park(HeldRequest(T0, poll.now_ms() + 60_000, lambda _: woken_in.append(threading.get_ident())))
    await asyncio.gather(*(asyncio.to_thread(poll.on_arrival, [T0]) for _ in range(100)))
    await asyncio.sleep(0)
    assert calls == [False]
    assert woken_in == [threading.get_ident()]


async def test_the_earliest_deadline_is_served_first_whenever_it_was_parked() -> None:
    poll, late, soon = LongPoll(), Calls(), Calls()
    done = asyncio.Event()

    def woken(timed_out: bool) -> None:
        soon.append(timed_out)
        done.set()

    poll.park(late.hold(deadline_ms=poll.now_ms() + 60_000))
    poll.park(HeldRequest(T1, poll.now_ms() + 20, woken))
    async with asyncio.timeout(10):
        await done.wait()
    assert (soon, late) == ([True], [])


async def test_closing_answers_everybody_and_holds_nobody_afterwards() -> None:
    poll, calls = LongPoll(), Calls()
    poll.park(calls.hold(deadline_ms=poll.now_ms() + 60_000))
    poll.close()
    assert calls == [True]
    poll.park(calls.hold(deadline_ms=poll.now_ms() + 60_000))
    await asyncio.sleep(0)
    assert calls == [True, True]


def test_the_table_knows_how_many_it_holds_whichever_way_they_leave() -> None:
    table, calls, owner = HoldTable(), Calls(), object()
    for number in range(4):
        table.park(calls.hold(T0, deadline_ms=number))
        table.park(calls.hold(T1, deadline_ms=500, owner=owner))
    assert len(table) == 8
    table.expired(1)
    assert len(table) == 6
    table.forget(owner)
    assert len(table) == 2
    table.forget(owner)
    table.arrived([T0, T1])
    assert len(table) == 0
    assert table.next_deadline_ms() is None
