"""Folders with awkward names: a path that is given is that very path, for Python and for Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from dejamq_analytics.__main__ import main
from dejamq_analytics.follow.follower import FollowPace
from dejamq_analytics.follow.run import Follow, Following
from dejamq_analytics.sources.paths import BadInput, local_path, to_spark, to_stream
from dejamq_proto.records.record import Record
from journals import History
from pyspark.sql import SparkSession
from stories import STORIES
from test_stores import store_of

AWKWARD = "_Mein Projekt 100%41 #1 [a-z]{b,c}*?:=+&é\\'\""

WITHOUT_COLON = AWKWARD.replace(":", "")


def written(journal: Path, name: str = "o7") -> Path:
    journal.mkdir(parents=True)
    history = History(journal, name)
    STORIES[name](history)
    history.end()
    return journal


@pytest.mark.parametrize("name", [AWKWARD, "a:b/journal", "my:dir", "journal#1", "what?", "file:", "x=1", "100%"])
def test_a_name_without_a_scheme_is_a_path_letter_by_letter(name: str) -> None:
    assert local_path(name) == Path(name)


def test_a_uri_of_a_file_is_a_path_and_other_uris_are_not() -> None:
    assert local_path("file:///My%20Project/a%23b") == Path("/My Project/a#b")
    assert local_path("file:/plain") == Path("/plain")
    assert local_path(Path(f"/{AWKWARD}").as_uri()) == Path(f"/{AWKWARD}")
    assert local_path("hdfs://host/journals") is None
    assert to_spark("s3a://bucket/{a,b}/*") == "s3a://bucket/{a,b}/*"


def test_a_name_that_spark_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="UTF-8"):
        to_spark(tmp_path / os.fsdecode(b"\xe9"))


def test_where_spark_cannot_follow_is_refused(tmp_path: Path) -> None:
    assert to_stream(tmp_path / "12:30") == f"file://{tmp_path}/12:30"
    with pytest.raises(BadInput, match="both a colon and one of"):
        to_stream(tmp_path / "12:30 [x]")


@pytest.mark.spark
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_journal_store_and_out_of_an_audit_may_have_any_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    home = tmp_path / AWKWARD
    written(home / "journal" / AWKWARD)
    store = store_of([Record("t", 0, b"x")], home / "store {1}")
    monkeypatch.chdir(home)
    given = [f"journal/{AWKWARD}", "--store", store.name, "--out", "out [1] %20", "--engine", engine]
    assert main(given) == 1
    out = home / "out [1] %20"
    assert {path.name for path in out.iterdir()} == {"findings", "anomalies", "runs", "report.html", "verdict.json"}
    told = pyarrow.parquet.read_table(out / "findings").num_rows
    assert told
    main([*given, "--since", "last"])
    assert len([*(out / "runs").iterdir()]) == 2
    assert pyarrow.parquet.read_table(out / "findings").num_rows == told, "the second run read the first one's"
    assert [path.name for path in tmp_path.iterdir()] == [AWKWARD]
    spark.catalog.clearCache()


@pytest.mark.spark
def test_a_following_audit_keeps_its_checkpoint_where_it_was_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / WITHOUT_COLON
    what = Following([written(home / "journal")], home / "out", FollowPace(1_000, 900_000_000))
    told: list[Path] = []
    for _ in range(2):  # the second one reads what the first one left
        with Follow(spark, what, told.append) as running:
            for now_ms in (0, 10, 20):
                running.step(now_ms)
                running.settle()
    assert {path.name for path in (home / "out" / "checkpoint").iterdir()} == {"chunks", "spark", "state"}
    assert [path.parent.parent for path in told] == [home / "out" / "findings"]
    assert [path.name for path in tmp_path.iterdir()] == [WITHOUT_COLON]
    spark.catalog.clearCache()


@pytest.mark.spark
@pytest.mark.process
def test_a_name_that_is_not_ascii_is_found_in_the_locale_c(tmp_path: Path) -> None:
    journal = written(tmp_path / "Журнал é")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    command = [sys.executable, "-m", "dejamq_analytics", str(journal), "--out", str(tmp_path / "sortie é")]
    ran = subprocess.run(command, env=environment | {"LC_ALL": "C"}, capture_output=True, timeout=500, check=False)
    assert ran.returncode == 1, ran.stderr.decode()
    assert pyarrow.parquet.read_table(tmp_path / "sortie é" / "findings").num_rows == 2
