"""Message ids: RocketMQ's layout, and never one twice."""

import threading
import time
from datetime import datetime

import pytest
from dejamq.values.unique_id import UniqueIds, next_unique_id


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


NOON = datetime(2024, 5, 17, 12).timestamp()


def ids_at(clock: Clock, pid: int = 0x12345) -> UniqueIds:
    ids = UniqueIds("192.0.2.7", clock=clock)
    ids.forget(pid)
    return ids


def test_an_id_has_the_layout_of_rocketmq() -> None:
    raw = bytes.fromhex(ids_at(Clock(NOON)).take())
    assert len(raw) == 16
    assert raw[:4] == bytes([192, 0, 2, 7])
    assert raw[4:6] == (0x2345).to_bytes(2, "big")
    since_month_began = int((NOON - datetime(2024, 5, 1).timestamp()) * 1000)
    assert int.from_bytes(raw[10:14], "big") == since_month_began
    assert int.from_bytes(raw[14:], "big") == 0


def test_an_id_is_32_upper_case_digits() -> None:
    text = next_unique_id()
    assert len(text) == 32
    assert text == text.upper()


def test_two_hundred_thousand_ids_of_a_standing_clock_differ() -> None:
    ids = ids_at(Clock(NOON))
    assert len({ids.take() for _ in range(200_000)}) == 200_000


def test_ids_differ_when_the_clock_goes_back_and_comes_again() -> None:
    clock = Clock(NOON)
    ids = ids_at(clock)
    taken = []
    for now in (NOON, NOON + 5, NOON - 3600, NOON - 3600 + 0.001, NOON + 5, NOON + 5.001):
        clock.now = now
        taken += [ids.take() for _ in range(30_000)]
    assert len(set(taken)) == len(taken)


def test_the_same_millisecond_of_the_next_month_gives_other_ids() -> None:
    clock = Clock(datetime(2024, 5, 1, 0, 0, 1).timestamp())
    ids = ids_at(clock)
    may = ids.take()
    clock.now = datetime(2024, 6, 1, 0, 0, 1).timestamp()
    june = ids.take()
    assert may[20:28] == june[20:28]
    assert may[12:20] != june[12:20]


def test_december_is_followed_by_january() -> None:
    clock = Clock(datetime(2024, 12, 31, 23, 59, 59).timestamp())
    ids = ids_at(clock)
    ids.take()
    clock.now = datetime(2025, 1, 1, 0, 0, 2).timestamp()
    assert int(ids.take()[20:28], 16) == 2000


def test_ids_follow_the_clock() -> None:
    first = next_unique_id()
    time.sleep(0.002)
    assert next_unique_id()[20:28] > first[20:28]


class Standing(Clock):
    """Stands still at the look of that number of one thread, until it may go on."""

    def __init__(self, now: float, at: int) -> None:
        super().__init__(now)
        self.at, self.thread, self.looks = at, threading.Thread(), 0
        self.stands, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> float:
        now = self.now
        if threading.current_thread() is self.thread:
            self.looks += 1
            if self.looks == self.at:
                self.stands.set()
                assert self.go_on.wait(30)
        return now


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("step", [0.0, 0.001])
def test_a_thread_that_stands_still_gets_no_id_that_others_took_meanwhile(at: int, step: float) -> None:
    clock, late = Standing(NOON, at), list[str]()
    ids = ids_at(clock)
    taken = {ids.take()}
    clock.now += 0.001
    clock.thread = threading.Thread(target=lambda: late.extend(ids.take() for _ in range(10)))
    clock.thread.start()
    assert clock.stands.wait(30)
    for number in range(1, 200_000):
        taken.add(ids.take())
        if number % 1000 == 0:
            clock.now += step
    clock.go_on.set()
    clock.thread.join()
    taken.update(ids.take() for _ in range(100_000))
    assert len(taken) == 300_000
    assert len(set(late)) == 10
    assert not taken & set(late)


def test_a_number_that_is_none_of_the_milliseconds_moves_on_to_the_next_one() -> None:
    """A thread took it and stood still: those of later milliseconds are higher, and end with the same digits."""
    ids, numbers, seen = ids_at(Clock(NOON)), (100_000, 7, 100_001, 65_543, 7), set[str]()
    for number in numbers:
        _, _, first, last, prefix = ids.advance(number)
        assert first <= number <= last
        seen.add(f"{prefix}{number & 0xFFFF:04X}")
    assert len(seen) == len(numbers)


def test_an_id_that_is_wanted_while_one_is_made_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a finalizer or a signal's handler, in the same thread."""
    ids, inner = ids_at(Clock(NOON)), list[str]()
    begin = ids._begin_month

    def interrupted(now_ms: int) -> None:
        inner.extend(ids.take() for _ in range(3))
        begin(now_ms)

    monkeypatch.setattr(ids, "_begin_month", interrupted)
    assert len({ids.take(), ids.take(), *inner}) == 5
