"""Message ids: RocketMQ's layout, and never one twice."""

import time
from datetime import datetime

from dejamq.unique_id import UniqueIds, next_unique_id


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
