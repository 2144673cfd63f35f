"""Where two logs part, and when a slave may not follow at all."""

import random

import pytest
from dejamq_broker.replication import common_end as ha_meeting
from dejamq_broker.replication.common_end import Apart, LogExtent, check_extents, common_end, first_offset

FILE = 1000


class Logs:
    """Two logs that are the same up to some byte, and how much of them was compared."""

    def __init__(self, mine: bytes, theirs: bytes, my_min: int = 0, their_min: int = 0) -> None:
        self.mine = LogExtent(my_min, my_min + len(mine), FILE)
        self.theirs = LogExtent(their_min, their_min + len(theirs), FILE)
        self._my_bytes, self._their_bytes = bytes(my_min) + mine, bytes(their_min) + theirs
        self.questions: list[int] = []

    async def equal(self, begin: int, end: int) -> bool:
        assert begin < end
        self.questions.append(end - begin)
        return self._my_bytes[begin:end] == self._their_bytes[begin:end]

    async def meet(self) -> int:
        return await common_end(self.mine, self.theirs, self.equal)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_meeting, "COMPARED", 64)
    monkeypatch.setattr(ha_meeting, "MOST", 256)


async def test_a_slave_that_is_behind_goes_on_at_its_end_after_one_question() -> None:
    logs = Logs(b"abc" * 100, b"abc" * 200)
    assert await logs.meet() == 300
    assert logs.questions == [64]


async def test_a_slave_ahead_of_a_master_that_lost_its_tail_has_that_much_in_common() -> None:
    logs = Logs(b"abc" * 200, b"abc" * 100)
    assert await logs.meet() == 300


@pytest.mark.parametrize("seed", range(20))
async def test_the_first_byte_that_differs_is_found_wherever_it_is(seed: int) -> None:
    rng = random.Random(seed)
    common = rng.randbytes(rng.randrange(3000))
    mine, theirs = (common + byte + rng.randbytes(rng.randrange(3000)) for byte in (b"\x01", b"\x02"))
    logs = Logs(mine, theirs)
    assert await logs.meet() == len(common)
    assert max(logs.questions) <= 256


async def test_logs_that_begin_at_other_places_are_compared_where_both_are() -> None:
    logs = Logs(b"x" * 300, b"x" * 500 + b"y" * 500, my_min=400)
    assert await logs.meet() == 500
    assert await Logs(b"y" * 300, b"x" * 600, my_min=400).meet() == 400


async def test_a_slave_that_ends_where_the_master_begins_has_nothing_to_compare() -> None:
    logs = Logs(b"x" * 400, b"y" * 100, their_min=400)
    check_extents(logs.mine, logs.theirs)
    assert await logs.meet() == 400
    assert logs.questions == []


def test_an_empty_slave_begins_at_the_masters_last_file_or_where_all_of_it_begins() -> None:
    assert first_offset(LogExtent(1000, 4500, FILE), full=False) == 4000
    assert first_offset(LogExtent(1000, 4500, FILE), full=True) == 1000
    assert first_offset(LogExtent(0, 0, FILE), full=False) == 0
    assert first_offset(LogExtent(4000, 4000, FILE), full=False) == 4000


@pytest.mark.parametrize(
    ("mine", "theirs", "text"),
    [
        (LogExtent(0, 500, 2000), LogExtent(0, 500, FILE), "set mapped_file_size_commit_log to the master's"),
        (LogExtent(0, 0, 2000), LogExtent(0, 500, FILE), "set mapped_file_size_commit_log to the master's"),
        (LogExtent(0, 900, FILE), LogExtent(2000, 2500, FILE), "empty this slave's store directory"),
        (LogExtent(1000, 1900, FILE), LogExtent(0, 500, FILE), "start this broker as master"),
        (LogExtent(1000, 1900, FILE), LogExtent(0, 0, FILE), "start this broker as master"),
    ],
)
def test_logs_of_which_one_cannot_go_on_from_the_other_are_apart(mine: LogExtent, theirs: LogExtent, text: str) -> None:
    with pytest.raises(Apart, match=text):
        check_extents(mine, theirs)


def test_a_slave_without_a_log_follows_any_master() -> None:
    check_extents(LogExtent(0, 0, FILE), LogExtent(5000, 5500, FILE))
    check_extents(LogExtent(3000, 3000, FILE), LogExtent(0, 0, FILE))
