"""Journals as they are found: torn, with holes, empty, absent."""

from pathlib import Path

import pytest
from dejamq_analytics.sources.journals import check_journals, processes, read_lines, steady
from dejamq_analytics.sources.paths import BadInput
from dejamq_proto.journal.events import State
from journals import History
from pyspark.sql import DataFrame, Row, SparkSession
from stories import STORIES
from told import Auditor


def known_processes(quick: SparkSession, directory: Path) -> list[Row]:
    return processes(read_lines(quick, [str(directory)])).orderBy("boot_id").collect()


def test_a_torn_last_line_is_left_out_and_counted(tmp_path: Path, in_either: SparkSession) -> None:
    history = History(tmp_path, "clean")
    STORIES["clean"](history)
    history.end()
    torn = history.processes[1].path
    lines = torn.read_bytes().splitlines(keepends=True)
    torn.write_bytes(b"".join(lines) + b'{"event":"RESULT","v":1,"role":"consu')
    (damaged,) = [row for row in known_processes(in_either, tmp_path) if row.torn]
    assert (damaged.boot_id, damaged.lines, damaged.torn) == ("cleanc1", len(lines), 1)
    assert [(gap.first, gap.last) for gap in damaged.gaps] == [(len(lines) + 1, len(lines) + 1)]


def test_a_torn_last_line_of_the_first_owner_makes_its_cause_undetermined(tmp_path: Path, audited: Auditor) -> None:
    history = History(tmp_path, "o1")
    STORIES["o1"](history)
    history.end()
    torn = history.processes[1].path
    torn.write_bytes(torn.read_bytes()[:-9])
    (finding,) = audited().findings.collect()
    assert (finding.cause, finding.missing) == (None, "seq gap 4-4 of o1-c1 (consumer-*-o1c1.jsonl line 4)")
    assert list(tmp_path.rglob("consumer-*-o1c1.jsonl")) == [torn], "a shell finds it by that"


@pytest.mark.parametrize("line", [b'{"event":"STATE"}', b'{"seq":3}', b'{"event":null,"seq":3}', b"{}"])
def test_a_line_of_json_that_is_no_event_counts_as_torn(tmp_path: Path, in_either: SparkSession, line: bytes) -> None:
    history = History(tmp_path)
    consumer = history.consumer()
    consumer.skip_lines(1)
    consumer.close()
    first, last = consumer.path.read_bytes().splitlines(keepends=True)
    consumer.path.write_bytes(first + line + b"\n" + last)
    (row,) = known_processes(in_either, tmp_path)
    assert (row.boot_id, row.lines, row.torn) == (consumer.boot_id, 2, 1)


def test_missing_lines_are_gaps_also_before_the_first_one_that_rotation_left(
    tmp_path: Path, in_either: SparkSession
) -> None:
    history = History(tmp_path)
    consumer = history.consumer()
    consumer.skip_lines(5)
    consumer.write(State(state="resumed"))
    consumer.skip_lines(1)
    consumer.close()
    consumer.path.write_bytes(b"".join(consumer.path.read_bytes().splitlines(keepends=True)[1:]))
    (row,) = known_processes(in_either, tmp_path)
    assert [(gap.first, gap.last) for gap in row.gaps] == [(1, 6), (8, 8)]
    assert (row.closed, row.level) == (True, "")


def test_a_file_of_nothing_but_garbage_counts_as_one_process_with_a_gap(
    tmp_path: Path, in_either: SparkSession
) -> None:
    (tmp_path / "consumer-x-0123456789abcdef.jsonl").write_bytes(b"\x00\x00\xff\n")
    (row,) = known_processes(in_either, tmp_path)
    assert (row.boot_id, row.torn, len(row.gaps)) == ("0123456789abcdef", 1, 1)


def test_times_of_a_process_whose_clock_jumped_are_told_as_if_it_had_not(
    tmp_path: Path, in_either: SparkSession
) -> None:
    history = History(tmp_path)
    jumping, other = history.consumer("c1"), history.consumer("c2")
    for process in (jumping, other):
        process.write(State(state="resumed"))
    jumping.jump(3_600_000)
    for process in (jumping, other):
        process.write(State(state="suspended"))
    history.end()
    lines = read_lines(in_either, [str(tmp_path)])
    told, right = (lines_of(frame, "suspended") for frame in (lines, steady(lines)))
    assert told[jumping.boot_id] - right[jumping.boot_id] == 3_600_000_000
    assert told[other.boot_id] == right[other.boot_id]
    assert lines_of(lines, "resumed") == lines_of(steady(lines), "resumed")


def lines_of(lines: DataFrame, state: str) -> dict[str, int]:
    """When each process says that it is in this state."""
    return {row.boot_id: row.wall_us for row in lines.where(f"state = '{state}'").collect()}


def test_without_a_jump_lines_are_given_back_as_they_are(tmp_path: Path, in_either: SparkSession) -> None:
    history = History(tmp_path)
    history.consumer().write(State(state="resumed"))
    history.end()
    lines = read_lines(in_either, [str(tmp_path)])
    assert steady(lines) is lines


def test_an_empty_journal_file_is_refused_with_what_to_do(tmp_path: Path, audited: Auditor) -> None:
    (tmp_path / "consumer-x-0123456789abcdef.jsonl").touch()
    with pytest.raises(BadInput, match="are empty: did the processes run with journal_dir set"):
        audited()


def test_an_empty_directory_is_refused_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no journal"):
        check_journals([str(tmp_path)])


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such journal directory"):
        check_journals([str(tmp_path / "nowhere")])
    with pytest.raises(BadInput, match="no journal directory given"):
        check_journals([])
