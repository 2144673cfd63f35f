"""Following journals that grow tells what one audit of the whole tells, each thing once, whatever ends it between."""

from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from dejamq_analytics.follow import window
from dejamq_analytics.follow.chunks import Step
from dejamq_analytics.follow.command import follow
from dejamq_analytics.follow.follower import Follower, Pace
from dejamq_analytics.follow.run import Follow, Following
from dejamq_analytics.follow.state import State
from dejamq_analytics.pipeline import facts_of
from dejamq_analytics.read import BadInput, processes, read_lines, readable
from dejamq_analytics.run import Request
from journals import History
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from stories import write_all
from told import Told

pytestmark = pytest.mark.spark
NAMES = ("o7", "o1", "o1-at-level-audit", "p1-undelivered", "l1")
PACE = Pace(delay_us=60_000_000, window_us=900_000_000)
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


def as_an_older_version_left_it(out: Path, field: str) -> None:
    """The lines that are kept lack a field that events have got since."""
    kept = [path for folder in out.rglob("lines") for path in folder.glob("part-*.parquet")]
    assert kept, f"no lines are kept under {out}"
    for path in kept:
        table = pyarrow.parquet.read_table(path)
        # without the metadata, in which Spark has the field as well
        pyarrow.parquet.write_table(table.drop_columns([field]).replace_schema_metadata(None), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_what_is_followed_is_told_once_and_is_what_an_audit_of_the_whole_tells(
    tmp_path: Path, spark: SparkSession, told: Told
) -> None:
    whole, journal, out = tmp_path / "whole", tmp_path / "journal", tmp_path / "out"
    put: list[Path] = []
    whole.mkdir()
    histories(whole)
    what = Following([journal], out, PACE)

    grow(whole, journal, 0.5)
    with Follow(spark, what, put.append) as running:
        assert running.step(0)
        running.settle()
    assert not put, "nothing is complete while lines may still come late"

    as_an_older_version_left_it(out, "batch_sizes")
    grow(whole, journal, 1)
    with Follow(spark, what, crash) as running:
        assert running.step(0)
        running.settle()
        assert running.step(QUIET_MS)
        with pytest.raises(StreamingQueryException, match="NotTaken"):
            running.settle()
        with pytest.raises(Crash):
            running.forever()
    with Follow(spark, what, put.append) as running:
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


def test_nothing_is_complete_that_is_younger_than_a_line_for_which_a_chunk_had_no_room(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The producer's acknowledgement may be read long before the broker's APPEND, which is not lost for that."""
    follower = Follower(State(tmp_path / "state"), tmp_path, Pace(delay_us=1_000, window_us=9_000), print)
    events = spark.createDataFrame([(10_000,), (90_000,)], "wall_us bigint")
    assert follower._meta(Step(number=1, unread_us=20_000), events).complete_us == 19_000
    assert follower._meta(Step(number=1), events).complete_us == 89_000


def test_of_old_lines_only_what_still_holds_is_kept(tmp_path: Path, spark: SparkSession) -> None:
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
    lines = read_lines(spark, [str(tmp_path)])
    facts = facts_of(readable(lines), processes(lines))
    left = window.kept(facts.events, facts.processes, floor_us)
    kinds = sorted((row.process, row.event) for row in left.select("process", "event").collect())
    assert kinds == [
        ("long-broker-0", "BOOT"), ("long-broker-0", "OFF_SET"), ("long-broker-0", "STATE"), ("long-c1", "DELIVER"),
        ("long-c1", "PERSIST"), ("long-c1", "PQ_OPEN"), ("long-c1", "RESULT"), ("long-c1", "STATE"),
    ]  # fmt: skip
    (passed,) = window.reached(None, facts.deliveries, floor_us).collect()
    assert (passed.consumer_group, passed.queue_offset) == ("long", 39)
    spark.catalog.clearCache()


def test_what_was_read_and_dropped_is_no_hole_and_what_is_missing_stays_one(
    tmp_path: Path, spark: SparkSession
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
        halves.append(processes(read_lines(spark, [str(tmp_path / name)])))
    (row,) = window.known(halves[0], halves[1], 0).collect()
    assert [(gap.first, gap.last) for gap in row.gaps] == [(2, 3), (5, 6), (8, 9)]
    assert (row.lines, row.last_seq) == (4, 10)
    spark.catalog.clearCache()


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
