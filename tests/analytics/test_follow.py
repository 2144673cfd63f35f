"""Following journals that grow tells what one audit of the whole tells, each thing once, whatever ends it between."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from dejamq_analytics.follow import window
from dejamq_analytics.follow.chunks import ChunkStep
from dejamq_analytics.follow.command import follow, lines_of
from dejamq_analytics.follow.follower import Follower, FollowPace
from dejamq_analytics.follow.run import Follow, Following
from dejamq_analytics.follow.state import FollowState
from dejamq_analytics.frames import DUCKDB, SPARK, in_duckdb, using
from dejamq_analytics.pipeline import facts_of
from dejamq_analytics.run import Request
from dejamq_analytics.sources.journals import processes, read_lines, readable
from dejamq_analytics.sources.paths import BadInput
from journals import History
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from stories import write_all
from told import Told

NAMES = ("o7", "o1", "o1-at-level-audit", "p1-undelivered", "l1")
PACE = FollowPace(delay_us=60_000_000, window_us=900_000_000)
QUIET_MS = 60_000
SAME = {"finding_id", "cause", "missing", "expected", "stage", "trigger", "evidence", "first", "second"}


def histories(directory: Path) -> None:
    write_all(directory, NAMES)
    turned = History(directory, "order")
    consumer = turned.consumer()
    queue = consumer.open_queue(5)
    for offset in (6, 5, 7):
        consumer.handle(queue, offset, offset + 1)
    turned.end()


def grow(whole: Path, journal: Path, share: float) -> None:
    """Each journal reaches this share of its bytes, wherever that falls in a line."""
    journal.mkdir(exist_ok=True)
    for path in sorted(whole.glob("*.jsonl")):
        data = path.read_bytes()
        with (journal / path.name).open("ab") as file:
            file.write(data[file.tell() : int(len(data) * share)])


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    if not (out / name).exists():
        return []
    table: list[dict[str, Any]] = pyarrow.parquet.read_table(out / name).to_pylist()
    return table


class Crash(Exception):
    """What a kill is to the query: it ends in the middle of a batch."""


def crash(path: Path) -> None:
    raise Crash(path)


def as_an_older_version_left_it(out: Path, table: str, field: str) -> None:
    """The table that is kept lacks a field that has come since."""
    kept = [path for folder in out.rglob(table) for path in folder.rglob("part-*.parquet")]
    assert kept, f"no {table} are kept under {out}"
    for path in kept:
        whole = pyarrow.parquet.read_table(path)
        # without the metadata, in which Spark has the field as well
        pyarrow.parquet.write_table(whole.drop_columns([field]).replace_schema_metadata(None), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_what_is_followed_is_told_once_and_is_what_an_audit_of_the_whole_tells(
    tmp_path: Path, in_either: SparkSession, told: Told
) -> None:
    whole, journal, out = tmp_path / "whole", tmp_path / "journal", tmp_path / "out"
    put: list[Path] = []
    whole.mkdir()
    histories(whole)
    what = Following([journal], out, PACE)

    grow(whole, journal, 0.5)
    with Follow(in_either, what, put.append) as running:
        assert running.step(0)
        running.settle()
    assert not put, "nothing is complete while lines may still come late"

    as_an_older_version_left_it(out, "lines", "batch_sizes")
    as_an_older_version_left_it(out, "processes", "made_of")
    grow(whole, journal, 1)
    with Follow(in_either, what, crash) as running:
        assert running.step(0)
        running.settle()
        assert running.step(QUIET_MS)
        with pytest.raises((StreamingQueryException, Crash), match=r"NotTaken|part-"):
            running.settle()
        if not in_duckdb():  # Spark's thread failed, and the loop tells with what
            with pytest.raises(Crash):
                running.forever()
    with Follow(in_either, what, put.append) as running:
        assert not running.step(2 * QUIET_MS)
        running.settle()
        assert not running.step(9 * QUIET_MS)

    batch = {row.finding_id: row.asDict(recursive=True) for name in NAMES for row in told.of(name)}
    followed = rows(out, "findings")
    assert len(followed) == len(batch) > len(NAMES)
    for row in followed:
        assert {name: row[name] for name in SAME} == {name: batch[row["finding_id"]][name] for name in SAME}
    assert {row["run_id"] for row in followed} == {running.run_id}
    assert [row["kind"] for row in rows(out, "anomalies")] == ["out_of_order"]
    assert len(put) == len(set(put)) <= 2


@pytest.mark.spark
def test_what_one_engine_left_the_other_goes_on_with(
    tmp_path: Path, spark: SparkSession, quick: SparkSession, told: Told
) -> None:
    whole, journal, out = tmp_path / "whole", tmp_path / "journal", tmp_path / "out"
    whole.mkdir()
    histories(whole)
    what, put = Following([journal], out, PACE), list[Path]()
    for nth, engine in enumerate((SPARK, DUCKDB, SPARK)):
        grow(whole, journal, (nth + 1) / 3)
        with using(engine), Follow({SPARK: spark, DUCKDB: quick}[engine], what, put.append) as running:
            assert running.step(0)
            running.settle()
    with using(DUCKDB), Follow(quick, what, put.append) as running:
        assert not running.step(0)
        assert running.step(QUIET_MS)
        running.settle()
    expected = {row.finding_id for name in NAMES for row in told.of(name)}
    found = [row["finding_id"] for row in rows(out, "findings")]
    assert (set(found), len(found)) == (expected, len(expected))


def test_lines_become_complete_while_nothing_grows(tmp_path: Path, quick: SparkSession) -> None:
    pace = FollowPace(delay_us=20_000_000, window_us=90_000_000)
    follower = Follower(FollowState(tmp_path / "state"), tmp_path, pace, print)
    with using(DUCKDB):
        events = quick.createDataFrame([(10_000_000,), (30_000_000,)], "wall_us bigint")
        assert follower.meta_after(ChunkStep(number=2, idle_ms=5_000), events).complete_us == 15_000_000


@pytest.mark.spark
def test_nothing_is_complete_that_is_younger_than_a_line_for_which_a_chunk_had_no_room(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The producer's acknowledgement may be read long before the broker's APPEND, which is not lost for that."""
    follower = Follower(FollowState(tmp_path / "state"), tmp_path, FollowPace(delay_us=1_000, window_us=9_000), print)
    events = spark.createDataFrame([(10_000,), (90_000,)], "wall_us bigint")
    assert follower.meta_after(ChunkStep(number=1, unread_us=20_000), events).complete_us == 19_000
    assert follower.meta_after(ChunkStep(number=1), events).complete_us == 89_000


def test_of_old_lines_only_what_still_holds_is_kept(tmp_path: Path, in_either: SparkSession) -> None:
    """However long a consumer runs: what it opened stays, what it was given goes."""
    history = History(tmp_path, "long")
    broker, consumer, gone = history.broker(), history.consumer("c1"), history.consumer("c2")
    ended = gone.open_queue(0)
    gone.handle(ended, 0, 1)
    gone.drop_queue(ended, 1)
    gone.close()
    queue = consumer.open_queue(1)
    for offset in range(1, 40):
        consumer.handle(queue, offset, offset + 1)
        consumer.persist(queue, offset + 1)
        broker.offset_set(consumer, offset, offset + 1)
    floor_us = history.clock.now_us
    consumer.handle(queue, 40, 41)
    history.end()
    lines = read_lines(in_either, [str(tmp_path)])
    facts = facts_of(readable(lines), processes(lines))
    left = window.kept(facts.events, facts.processes, floor_us)
    kinds = sorted((row.process, row.event) for row in left.select("process", "event").collect())
    assert kinds == [
        ("long-broker-0", "BOOT"), ("long-broker-0", "OFF_SET"), ("long-broker-0", "STATE"), ("long-c1", "DELIVER"),
        ("long-c1", "PERSIST"), ("long-c1", "PQ_OPEN"), ("long-c1", "RESULT"), ("long-c1", "STATE"),
    ]  # fmt: skip
    (passed,) = window.reached(None, facts.deliveries, floor_us).collect()
    assert (passed.consumer_group, passed.queue_offset) == ("long", 39)
    if not in_duckdb():
        in_either.catalog.clearCache()


def test_what_was_read_and_dropped_is_no_hole_and_what_is_missing_stays_one(
    tmp_path: Path, in_either: SparkSession
) -> None:
    history = History(tmp_path, "two")
    consumer = history.consumer()
    for _ in range(3):
        consumer.skip_lines(2)
        consumer.open_queue(0)
    history.end()
    lines = consumer.path.read_bytes().splitlines(keepends=True)
    halves = []
    for name, part in (("first", lines[:2]), ("rest", lines[2:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / consumer.path.name).write_bytes(b"".join(part))
        halves.append(processes(read_lines(in_either, [str(tmp_path / name)])))
    (row,) = window.known(halves[0], halves[1], 0).collect()
    assert [(gap.first, gap.last) for gap in row.gaps] == [(2, 3), (5, 6), (8, 9)]
    assert (row.lines, row.last_seq) == (4, 10)
    if not in_duckdb():
        in_either.catalog.clearCache()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"since": "last", "out": Path("x")}, "--follow does not go with --since"),
        ({"group": "g", "out": Path("x")}, "--follow does not go with --group"),
        ({"stores": ["s"], "out": Path("x")}, "--follow does not go with --store"),
        ({}, "--follow needs --out"),
        ({"journals": ["s3://bucket/journal"], "out": Path("x")}, "--follow reads directories of this machine"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        follow(Request(**{"journals": [str(tmp_path / "any")]} | more), PACE, as_json=False)


def test_a_table_that_spark_wrote_is_told_as_lines_and_as_json(tmp_path: Path) -> None:
    """Spark writes INT96 times, which Arrow reads as times of pandas unless it is told otherwise."""
    at = datetime(2026, 9, 21, 13, 46, 40, 5000, UTC)
    row = {"anomaly_id": "a", "time": at, "kind": "lost", "consumer_group": None, "message_id": "m", "detail": "d"}
    table = tmp_path / "part.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist([row]), table, use_deprecated_int96_timestamps=True)
    assert [*lines_of(table, as_json=False)] == ["2026-09-21 13:46:40 lost - m: d"]
    (told,) = map(json.loads, lines_of(table, as_json=True))
    assert datetime.fromisoformat(told["time"]) == at, "with its zone"
