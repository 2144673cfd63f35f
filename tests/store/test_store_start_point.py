"""Where a start begins to read: the pure rules, by mark, by RocketMQ's checkpoint, by how far the queues go."""

from collections.abc import Callable
from pathlib import Path

import pytest
from dejamq_broker.store.files.checkpoint import Checkpoint
from dejamq_broker.store.log.scan import LogFiles
from dejamq_broker.store.log.start_point import (
    BY_CHECKPOINT,
    BY_MARK,
    BY_QUEUES,
    WHOLE_LOG,
    StartPoint,
    by_checkpoint,
    by_mark,
    by_queues,
    stored_at,
)
from dejamq_proto.records.record import Record, encode

SIZE = 1000
LOG = LogFiles(2000, 6000, SIZE)
"""Files that begin at 2000, 3000, 4000 and 5000."""
NOW = 1_700_000_000_000


def firsts(*times_ms: int | None) -> Callable[[int], int | None]:
    """The store times of the first records of these files; None: the file begins with no good record."""
    return lambda start: times_ms[(start - LOG.start) // SIZE]


ALL = firsts(100, 200, 300, 400)


@pytest.mark.parametrize(
    ("mark", "stored_ms", "walk_from"),
    [
        (4500, ALL, 4000),
        (5000, ALL, 5000),
        (4999, ALL, 4000),
        (6000, ALL, 5000),
        (5000, firsts(100, 200, 300, None), 4000),
        (5500, firsts(100, None, None, None), 2000),
        (5500, firsts(None, None, None, None), 2000),
        (2000, ALL, 2000),
    ],
)
def test_by_the_mark_the_walk_begins_with_the_newest_file_before_it_that_begins_with_a_record(
    mark: int, stored_ms: Callable[[int], int | None], walk_from: int
) -> None:
    assert by_mark(LOG, stored_ms, mark) == StartPoint(walk_from, mark, BY_MARK)


@pytest.mark.parametrize(("mark", "feed_from"), [(0, 2000), (9999, 6000)])
def test_a_mark_outside_the_log_counts_as_its_nearest_end(mark: int, feed_from: int) -> None:
    assert by_mark(LOG, ALL, mark).feed_from == feed_from


@pytest.mark.parametrize(
    ("queues_end", "stored_ms", "start", "rule"),
    [
        (5500, ALL, 5000, BY_QUEUES),
        (5000, ALL, 5000, BY_QUEUES),
        (4999, ALL, 4000, BY_QUEUES),
        (9999, firsts(100, 200, None, None), 3000, BY_QUEUES),
        (2500, ALL, 2000, WHOLE_LOG),
        (0, ALL, 2000, WHOLE_LOG),
    ],
)
def test_after_a_clean_stop_the_newest_file_that_the_queues_reach_is_read_again(
    queues_end: int, stored_ms: Callable[[int], int | None], start: int, rule: str
) -> None:
    assert by_queues(LOG, stored_ms, queues_end) == StartPoint(start, start, rule)


@pytest.mark.parametrize(
    ("safe_ms", "stored_ms", "start", "rule"),
    [
        (1000, ALL, 5000, BY_CHECKPOINT),
        (400, ALL, 5000, BY_CHECKPOINT),
        (399, ALL, 4000, BY_CHECKPOINT),
        (99, ALL, 2000, WHOLE_LOG),
        (0, ALL, 2000, WHOLE_LOG),
        (1000, firsts(100, 200, 300, 0), 4000, BY_CHECKPOINT),
        (1000, firsts(100, 200, None, None), 3000, BY_CHECKPOINT),
        (1000, firsts(None, None, None, None), 2000, WHOLE_LOG),
    ],
)
def test_after_a_crash_the_newest_file_that_the_checkpoint_vouches_for_is_read_again(
    safe_ms: int, stored_ms: Callable[[int], int | None], start: int, rule: str
) -> None:
    assert by_checkpoint(LOG, stored_ms, safe_ms) == StartPoint(start, start, rule)


def test_an_empty_log_begins_where_it_ends() -> None:
    nothing = LogFiles(0, 0, SIZE)
    assert by_mark(nothing, ALL, 500) == StartPoint(0, 0, BY_MARK)
    assert by_queues(nothing, ALL, 500) == by_checkpoint(nothing, ALL, NOW) == StartPoint(0, 0, WHOLE_LOG)


@pytest.mark.parametrize(
    ("times", "index_too", "safe_ms"),
    [
        ((NOW - 5000, NOW - 9000, 0), False, NOW - 12_000),
        ((NOW - 9000, NOW - 5000, 0), False, NOW - 12_000),
        ((NOW, NOW, NOW), True, NOW - 3000),
        ((NOW, NOW, NOW - 7000), True, NOW - 10_000),
        ((NOW, NOW, 0), True, 0),
        ((NOW + 1, NOW, 0), False, 0),
        ((NOW, 1 << 62, 0), False, 0),
        ((0, NOW, 0), False, 0),
        ((NOW, -1, 0), False, 0),
        ((1000, 1000, 0), False, 0),
    ],
)
def test_a_checkpoint_vouches_for_what_is_three_seconds_older_than_its_least_time(
    times: tuple[int, int, int], index_too: bool, safe_ms: int
) -> None:
    assert Checkpoint(*times).safe_ms(NOW, index_too=index_too) == safe_ms


@pytest.mark.parametrize("raw", [b"", b"\0" * 39, b"\x01" * 39])
def test_a_checkpoint_that_is_too_short_counts_as_none(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "checkpoint").write_bytes(raw)
    assert Checkpoint.load(tmp_path / "checkpoint") == Checkpoint()
    assert Checkpoint.load(tmp_path / "missing") == Checkpoint()


def test_five_values_of_a_checkpoint_go_round(tmp_path: Path) -> None:
    saved = Checkpoint(1, 2, 3, 4, 5)
    saved.save(tmp_path / "checkpoint")
    assert Checkpoint.load(tmp_path / "checkpoint") == saved
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize(
    ("begins", "stored_ms"),
    [
        (encode(Record("T", 0, b"x", log_offset=2000, store_timestamp_ms=77)), 77),
        (encode(Record("T", 0, b"x", log_offset=0, store_timestamp_ms=77)), None),
        (encode(Record("T", 0, b"x", log_offset=2000, body_crc=1)), None),
        (b"", None),
        (b"\xff" * 100, None),
        (b"\0\0\0\1" * 100, None),
    ],
)
def test_the_first_record_of_a_file_counts_when_it_is_whole_and_in_its_place(
    begins: bytes, stored_ms: int | None
) -> None:
    file = begins.ljust(SIZE, b"\0")
    assert stored_at(lambda at, size: file[at - 2000 : at - 2000 + size], LOG)(2000) == stored_ms
