"""Growing journals are cut into chunks without losing, repeating or tearing a line."""

import json
from pathlib import Path
from typing import Any

import pytest
from dejamq_analytics.follow import chunks
from dejamq_analytics.follow.chunks import STEP, TORN, Chunker, ChunkStep

QUIET_MS = 1000


class Spool:
    """One journal directory, its spool, and a reader that takes every chunk."""

    def __init__(self, directory: Path) -> None:
        self.journals, self.spool = directory / "journal", directory / "spool"
        self.journals.mkdir()
        self.taken = ChunkStep()
        self.now_ms = 0
        self.chunker = self.started()

    def started(self) -> Chunker:
        """After a start, or one more after a crash: only files are left."""
        self.chunker = Chunker([self.journals], self.spool, self.taken, quiet_ms=QUIET_MS)
        return self.chunker

    def path(self, boot: str = "0a") -> Path:
        return self.journals / f"consumer-c-{boot}.jsonl"

    def write(self, data: str, boot: str = "0a") -> None:
        with self.path(boot).open("a") as file:
            file.write(data)

    def take(self) -> list[dict[str, Any]]:
        """Every line but STEP of chunks that were not taken, in order."""
        self.chunker.advance(self.taken.number, self.now_ms)
        told: list[dict[str, Any]] = []
        for chunk in sorted(self.spool.glob("*.jsonl")):
            if int(chunk.stem) > self.taken.number:
                lines = [json.loads(line) for line in chunk.read_text().splitlines()]
                assert lines[-1]["event"] == STEP
                told += lines[:-1]
                self.taken = self.chunker.step
        return told

    def numbers(self) -> list[int]:
        return [line["seq"] for line in self.take()]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path)


def lines(*numbers: int) -> str:
    return "".join(f'{{"event":"GAP","seq":{number}}}\n' for number in numbers)


def test_lines_come_once_and_in_order(spool: Spool) -> None:
    spool.write(lines(1, 2))
    assert spool.numbers() == [1, 2]
    spool.write(lines(3))
    assert spool.numbers() == [3]
    assert spool.numbers() == []


def test_a_half_line_waits_for_its_other_half(spool: Spool) -> None:
    spool.write(lines(1) + '{"event":"GAP",')
    assert spool.numbers() == [1]
    spool.write('"seq":2}\n')
    assert spool.numbers() == [2]


def test_a_journal_that_is_rotated_goes_on_under_both_names(spool: Spool) -> None:
    spool.write(lines(1))
    assert spool.numbers() == [1]
    spool.write(lines(2))
    spool.path().rename(spool.path().with_suffix(".1.jsonl"))
    spool.write(lines(3))
    assert spool.numbers() == [2, 3]
    assert spool.numbers() == []


def test_a_chunk_that_was_not_taken_is_not_made_again_after_a_crash(spool: Spool) -> None:
    spool.write(lines(1))
    spool.chunker.advance(0, 0)
    spool.write(lines(2))
    spool.started()
    assert spool.numbers() == [1]
    assert spool.numbers() == [2]


def test_while_a_chunk_waits_there_is_no_second_one(spool: Spool) -> None:
    spool.write(lines(1))
    assert spool.chunker.advance(0, 0)
    spool.write(lines(2))
    assert not spool.chunker.advance(0, 0)
    assert len(list(spool.spool.glob("*.jsonl"))) == 1


def test_a_half_written_chunk_of_a_crash_counts_for_nothing(spool: Spool) -> None:
    spool.write(lines(1))
    (spool.spool / ".000000000001.jsonl.tmp").write_text('{"event":"GA')
    assert spool.numbers() == [1]


def test_chunks_go_when_a_later_one_was_taken(spool: Spool) -> None:
    for number in (1, 2, 3):
        spool.write(lines(number))
        assert spool.numbers() == [number]
    assert [int(path.stem) for path in sorted(spool.spool.glob("*.jsonl"))] == [2, 3]


def test_quiet_is_told_once_and_ends_when_something_grows(spool: Spool) -> None:
    spool.write(lines(1))
    spool.take()
    spool.take()
    spool.now_ms = QUIET_MS
    assert spool.take() == []
    assert (spool.taken.quiet, spool.taken.number) == (True, 2)
    spool.now_ms *= 9
    assert spool.take() == []
    assert spool.taken.number == 2
    spool.write(lines(2))
    assert spool.numbers() == [2]
    assert not spool.taken.quiet


def test_while_nothing_grows_a_step_a_second_says_for_how_long(spool: Spool) -> None:
    spool.chunker = Chunker([spool.journals], spool.spool, spool.taken, quiet_ms=4000)
    spool.write(lines(1))
    spool.take()
    told = []
    for spool.now_ms in range(500, 5000, 500):
        spool.take()
        told.append((spool.taken.idle_ms, spool.taken.quiet))
    seconds = [(1000, False), (2000, False), (3000, False)]
    assert told == [(0, False), *(step for step in seconds for _ in range(2)), (0, True), (0, True)]


def test_the_torn_end_of_a_killed_process_is_told_when_all_is_quiet(spool: Spool) -> None:
    spool.write(lines(1) + '{"event":"GAP",')
    assert spool.numbers() == [1]
    spool.now_ms = QUIET_MS
    assert spool.take() == [{"event": TORN, "boot_id": "0a"}]


def test_a_damaged_line_is_laid_to_its_process(spool: Spool) -> None:
    spool.write(lines(1) + "\x00\x00\n" + lines(3))
    assert [line.get("boot_id", line.get("seq")) for line in spool.take()] == [1, "0a", 3]


@pytest.mark.parametrize("line", ['{"event":"GAP"}', '{"seq":2}', '{"event":"GAP",}'])
def test_a_line_that_is_no_event_is_laid_to_its_process_too(spool: Spool, line: str) -> None:
    spool.write(f"{lines(1)}{line}\n{lines(3)}")
    assert [told.get("boot_id", told.get("seq")) for told in spool.take()] == [1, "0a", 3]


def test_several_journals_have_positions_of_their_own(spool: Spool) -> None:
    spool.write(lines(1), "0a")
    spool.write(lines(1, 2), "0b")
    assert sorted(spool.numbers()) == [1, 1, 2]
    spool.write(lines(3), "0b")
    assert spool.numbers() == [3]


def timed(*moments: int) -> str:
    return "".join(f'{{"event":"GAP","seq":{moment},"wall_us":{moment}}}\n' for moment in moments)


def test_where_a_chunk_has_no_room_for_all_the_oldest_lines_come_first_and_it_says_what_is_left(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = len(timed(10))
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 4 * line)
    monkeypatch.setattr(chunks, "PIECE_BYTES", line)
    spool.write(timed(10, 13, 16, 19), "0a")
    spool.write(timed(11, 12, 17), "0b")
    assert (spool.numbers(), spool.taken.unread_us) == ([10, 11, 12, 13], 16)
    assert (spool.numbers(), spool.taken.unread_us) == ([16, 17, 19], None)


def test_of_a_journal_that_is_rotated_while_it_is_read_nothing_comes_twice_or_is_left_out(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = len(timed(10))
    monkeypatch.setattr(chunks, "PIECE_BYTES", line)
    spool.write(timed(10, 11, 12))
    blocks = iter([1])
    read = chunks._block

    def rotated(path: Path, key: str, begin: int, room: int) -> bytes:
        block = read(path, key, begin, room)
        if next(blocks, None):
            spool.path().rename(spool.path("0a.1"))
            spool.write(timed(13, 14))
        return block

    monkeypatch.setattr(chunks, "_block", rotated)
    told = spool.numbers()
    while len(told) < 5:
        told += spool.numbers()
    assert told == [10, 11, 12, 13, 14]
