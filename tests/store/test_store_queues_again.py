"""Queues made again from the log, and whether they need to be: gaps, repeats, topics made anew, lost entries."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store.log.scan import LogFiles
from dejamq_broker.store.queues.consume_queue import MAX_GAP, ConsumeQueue
from dejamq_broker.store.queues.consume_queues import append_again, out_of_place
from dejamq_broker.store.queues.coverage import first_uncovered
from dejamq_broker.store.queues.entry_files import ENTRY, FILLER_SIZE, Entries, EntryFiles
from dejamq_proto.records.record import (
    HEADER_SIZE,
    MAGIC_BLANK,
    PAIR,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    encode,
)
from store_making import bodies_of, fill_queue, log_files, open_small, overwrite, settle

FILE_SIZE = 1000


def entries_of(*places: tuple[int, int]) -> np.ndarray:
    """Entries of records by log offset and size."""
    return np.array([(log_offset, size, 0) for log_offset, size in places], ENTRY)


def again(queue: ConsumeQueue, queue_offsets: list[int], first: int = 0) -> list[str]:
    """Give a queue records of 100 bytes, the first at ``first``. Answers the log offsets that it refused, and why."""
    log_offsets = [first + 100 * number for number in range(len(queue_offsets))]
    entries = entries_of(*((log_offset, 100) for log_offset in log_offsets))
    ends = np.array(log_offsets, np.int64) + 100
    damages = append_again(queue, np.array(queue_offsets, np.int64), entries, ends)
    return [f"{damage.log_offset}: {damage.reason}" for damage in damages]


def log_offsets_of(queue: ConsumeQueue) -> list[int | None]:
    entries = queue.entries(queue.min_offset, 1000)
    return [None if entry["size"] == FILLER_SIZE else int(entry["log_offset"]) for entry in entries]


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    return ConsumeQueue(tmp_path / "queue", 20 * 50, lambda: 4_096)


def test_a_gap_in_the_log_becomes_fillers(queue: ConsumeQueue) -> None:
    assert again(queue, [0, 1, 4, 5]) == []
    assert log_offsets_of(queue) == [0, 100, None, None, 200, 300]


def test_a_queue_that_begins_late_begins_at_its_first_record(queue: ConsumeQueue) -> None:
    assert again(queue, [120, 121]) == []
    assert (queue.min_offset, queue.max_offset) == (120, 122)
    queue.write_out()
    assert queue.entries(120, 5)["log_offset"].tolist() == [0, 100]
    filled = np.fromfile(queue.folder / f"{2000:020d}", ENTRY)
    assert filled["size"][:20].tolist() == [FILLER_SIZE] * 20


def test_a_queue_that_begins_very_late_costs_no_more(queue: ConsumeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = EntryFiles.read

    def counted(files: EntryFiles, queue_offset: int, count: int) -> Entries:
        reads.append(queue_offset)
        return read(files, queue_offset, count)

    monkeypatch.setattr(EntryFiles, "read", counted)
    again(queue, [5_000_000_049, 5_000_000_050])
    assert len(reads) < 5
    assert len(queue._tail.entries) < 50 + 64
    assert (queue.min_offset, queue.max_offset) == (5_000_000_049, 5_000_000_051)
    queue.write_out()
    loaded = ConsumeQueue(queue.folder, 20 * 50, lambda: 4_096)
    assert loaded.load(None) == ""
    loaded.correct_min(0)
    assert (loaded.min_offset, loaded.max_offset) == (5_000_000_049, 5_000_000_051)


@pytest.mark.parametrize("repeated", [[0, 1, 1, 2], [0, 1, 2, 2, 1, 3], [0, 0, 1, 1, 2, 2]])
def test_a_queue_offset_that_comes_again_is_passed_over(queue: ConsumeQueue, repeated: list[int]) -> None:
    again(queue, [0, 1])
    assert again(queue, [2 + each for each in repeated], first=200) == []
    firsts = [200 + 100 * repeated.index(each) for each in sorted(set(repeated))]
    assert log_offsets_of(queue) == [0, 100, *firsts]


def test_records_that_are_there_already_are_passed_over(queue: ConsumeQueue) -> None:
    again(queue, [0, 1, 2, 3])
    assert again(queue, [2, 3, 4, 5], first=200) == []
    assert log_offsets_of(queue) == [0, 100, 200, 300, 400, 500]


def test_a_topic_that_was_deleted_and_made_again_has_the_entries_of_its_later_life(queue: ConsumeQueue) -> None:
    again(queue, list(range(70)))
    queue.write_out()
    assert again(queue, [70, 71, 0, 1, 2], first=7000) == []
    assert log_offsets_of(queue) == [7200, 7300, 7400]
    queue.write_out()
    assert [path.name for path in queue.folder.iterdir()] == [f"{0:020d}"]


@pytest.mark.parametrize("wild", [0, 7, 1 << 40, -(1 << 62)])
def test_a_queue_offset_that_both_neighbours_contradict_gets_no_entry(queue: ConsumeQueue, wild: int) -> None:
    again(queue, list(range(10)))
    (refused,) = again(queue, [10, 11, wild, 13], first=1000)
    assert refused == f"1200: it says entry {wild}, and its neighbours do not agree"
    assert log_offsets_of(queue)[10:] == [1000, 1100, None, 1300]


def test_a_queue_offset_beyond_any_gap_gets_no_entry(queue: ConsumeQueue) -> None:
    again(queue, list(range(10)))
    assert len(again(queue, [10, MAX_GAP + 100], first=1000)) == 1
    assert queue.max_offset == 11


def test_of_two_that_disagree_nobody_can_say_which_is_wrong() -> None:
    assert not out_of_place(np.array([5]), 3).any()
    assert not out_of_place(np.array([3, 9, 10]), 3).any()
    assert out_of_place(np.array([3, 9, 5]), 3).tolist() == [False, True, False]


# Coverage.


class Log:
    """A log of small files in memory, and one queue of what should have entries in it."""

    def __init__(self, folder: Path) -> None:
        self.data = bytearray()
        self.queue = ConsumeQueue(folder, 20 * 50, lambda: 4_096)
        self.count = 0

    def add(self, *, entry: bool = True, sys_flag: int = 0) -> int:
        at = len(self.data)
        data = encode(Record("T", 0, b"x" * 100, log_offset=at, sys_flag=sys_flag))
        self.data += data
        if entry:
            ends = np.array([at + len(data)])
            self.queue.append(np.array([self.count]), entries_of((at, len(data))), ends)
            self.count += 1
        return at

    def roll(self) -> None:
        room = FILE_SIZE - len(self.data) % FILE_SIZE
        self.data += PAIR.pack(room, MAGIC_BLANK).ljust(room, b"\xee")

    def uncovered(self, end: int | None = None, queues: list[ConsumeQueue] | None = None) -> int | None:
        size = -(-len(self.data) // FILE_SIZE) * FILE_SIZE
        data = bytes(self.data).ljust(size, b"\0")

        def read(log_offset: int, count: int) -> bytes:
            return data[log_offset : min(log_offset + count, (log_offset // FILE_SIZE + 1) * FILE_SIZE)]

        chosen = [self.queue] if queues is None else queues
        return first_uncovered(chosen, read, LogFiles(0, size, FILE_SIZE), len(self.data) if end is None else end)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    made = Log(tmp_path / "of log")
    for _ in range(5):
        made.add()
    made.roll()
    for _ in range(5):
        made.add()
    made.roll()
    return made


def test_entries_and_blanks_cover_the_log(log: Log) -> None:
    assert log.uncovered() is None
    assert log.uncovered(FILE_SIZE) is None
    assert log.uncovered(0) is None


def test_a_record_without_its_entry_is_found(log: Log) -> None:
    lost = log.add(entry=False)
    log.add()
    assert log.uncovered() == lost
    assert log.uncovered(2 * FILE_SIZE) is None


def test_queues_that_are_gone_leave_everything_uncovered(log: Log) -> None:
    assert log.uncovered(queues=[]) == 0


@pytest.mark.parametrize("sys_flag", [SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK])
def test_records_that_get_no_entry_explain_a_gap(log: Log, sys_flag: int) -> None:
    log.add(entry=False, sys_flag=sys_flag)
    log.add()
    log.add(entry=False, sys_flag=sys_flag)
    lost = log.add(entry=False)
    assert log.uncovered(lost) is None
    assert log.uncovered() == lost


def test_damage_explains_a_gap_but_not_the_record_behind_it(log: Log) -> None:
    at = log.add(entry=False)
    log.add()
    log.data[at + 90] ^= 1
    assert log.uncovered() is None
    lost = log.add(entry=False)
    log.add(entry=False)
    log.data[lost + 90] ^= 1
    assert log.uncovered() == len(log.data) - (len(log.data) - lost) // 2


def test_an_entry_that_points_into_a_record_is_found(log: Log) -> None:
    at = log.add()
    log.queue.append(np.array([log.count]), entries_of((at + 10, 300)), np.array([at + 310]))
    assert log.uncovered() == at + 10


def test_entries_of_two_queues_for_one_record_are_no_fault(log: Log) -> None:
    assert log.uncovered(queues=[log.queue, log.queue]) is None


def test_a_gap_of_more_records_than_fit_between_in_the_log_is_none(queue: ConsumeQueue) -> None:
    assert again(queue, [0, 1, 5_000_000]) == ["200: it says entry 5000000, and its neighbours do not agree"]
    assert again(queue, [2, 4000], first=300) == []
    assert queue.max_offset == 4001


def test_a_record_whose_topic_can_name_no_queue_costs_only_itself_when_queues_are_made_again(tmp_path: Path) -> None:
    """A topic has no checksum; one turned byte in it must not keep a store from being opened, nor lead out of it."""
    store = open_small(tmp_path)
    sent = fill_queue(store, 120)
    settle(store)
    store.close()
    topic_at = 100 + HEADER_SIZE + 1
    for number, name in ((10, b"/"), (20, b"."), (30, b"\0")):
        overwrite(log_files(tmp_path)[0], number * 192 + topic_at, name)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "dispatched.json").unlink()
    store = open_small(tmp_path)
    assert bodies_of(store) == [body for number, body in enumerate(sent) if number not in (10, 20, 30)]
    assert sorted(path.name for path in (tmp_path / "consumequeue").iterdir()) == ["T"]
