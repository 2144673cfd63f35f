"""One set of rules, two engines: DuckDB tells what Spark tells, row by row, to the last letter of the evidence."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import stories_polls  # noqa: F401  # they register themselves
from dejamq_analytics import pipeline, run
from dejamq_analytics.__main__ import main
from dejamq_analytics.duck.frame import Frame
from dejamq_analytics.duck.session import DuckSession
from dejamq_analytics.frames import DUCKDB, SPARK
from dejamq_analytics.report.write import IDS
from dejamq_analytics.run import Request, engine_of
from dejamq_analytics.sources import workload_estimate
from dejamq_analytics.sources.paths import BadInput
from journals import History
from plain_runs import RUN, write_remade, write_runs, write_shared
from pyspark.sql import SparkSession
from stories import STORIES
from stories_odd import ODD
from test_logs_alone import GOLDEN, Log, write_doubles

pytestmark = pytest.mark.spark
ENGINES = (SPARK, DUCKDB)
Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def no_journal_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEJAMQ_JOURNAL_DIR", raising=False)


def told(spark: SparkSession, engine: str, out: Path, *arguments: str) -> tuple[Tables, Path]:
    """Findings and anomalies, in their order, and where everything was written."""
    folder = out / engine
    main([*arguments, "--engine", engine, "--out", str(folder)])
    spark.catalog.clearCache()
    return {name: pyarrow.parquet.read_table(folder / name).to_pylist() for name in IDS}, folder


def same(spark: SparkSession, out: Path, *arguments: str) -> Tables:
    """What both tell. Also the verdict and the report are the same, to the byte."""
    (of_spark, by_spark), (of_duckdb, by_duckdb) = (told(spark, engine, out, *arguments) for engine in ENGINES)
    for name, rows in of_spark.items():
        for one, other in zip(rows, of_duckdb[name], strict=True):
            assert one == other
    for name in ("verdict.json", "report.html"):
        assert (by_spark / name).read_bytes() == (by_duckdb / name).read_bytes()
    return of_spark


def doubles(directory: Path) -> str:
    """A store with a double of each kind."""
    log = Log(directory)
    write_doubles(log)
    log.close()
    return str(directory)


def written(directory: Path, names: tuple[str, ...]) -> str:
    directory.mkdir()
    for name in names:
        history = History(directory, name)
        STORIES[name](history)
        history.end()
    return str(directory)


def test_both_engines_tell_the_same_of_a_few_histories_with_a_store(spark: SparkSession, tmp_path: Path) -> None:
    journal = written(
        tmp_path / "journal", ("o1", "o7", "l1", "two-owners", "p1", "p1-undelivered", "p5-by-business-key")
    )
    with next((tmp_path / "journal").glob("consumer-*o7c2*")).open("ab") as torn:
        torn.write(b'{"event":"DEL')
    (tmp_path / "journal" / "consumer-x-0123456789abcdef.jsonl").write_bytes(b"\x00\x00\xff\n")
    store = doubles(tmp_path / "store")
    tables = same(spark, tmp_path / "out", journal, "--store", store, "--business-key", "ORDER")
    assert {row["cause"] for row in tables["findings"]} == {"O1", "O7", "P1", "P5", "L1", None}
    assert any("only its commit log" in (row["missing"] or "") for row in tables["findings"])


@pytest.mark.slow
def test_of_all_histories_a_survey_tells_what_duckdb_tells_of_every_line(
    spark: SparkSession, tmp_path: Path, stories: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound ones, cut ones, odd ones and plain runs in one audit, which Spark reads as it reads large journals.

    A group each. One message of the plain runs came twice and one never; others went to three groups.
    """
    journal = tmp_path / "journal"
    shutil.copytree(stories, journal)
    (journal / "elsewhere").mkdir()
    for name, (_, write) in ODD.items():
        history = History(journal, name)
        write(history)
        history.end()
    write_runs(History(journal, "plain-runs"), again=3, unseen=7)
    write_shared(History(journal, "shared"), chance)
    write_remade(History(journal, "remade"))
    monkeypatch.setattr(pipeline, "SURVEY_BYTES", 0)
    monkeypatch.setattr(pipeline, "LITTLE", 0)  # rows in several partitions
    tables = same(spark, tmp_path / "out", str(journal))
    answers = iter([False, True])  # too large as a whole, and what is left of it is not
    monkeypatch.setattr(run, "fits_duckdb", lambda size: next(answers))
    assert told(spark, "auto", tmp_path / "out", str(journal))[0] == tables, "so do processes of this machine"
    assert next(answers, None) is None
    assert len({row["cause"] for row in tables["findings"]}) > 40
    assert {row["kind"] for row in tables["anomalies"]} >= {kind for kind, _ in ODD.values() if kind}
    assert len([row for row in tables["findings"] if row["message_id"].startswith("plain-runs-")]) == RUN


@pytest.mark.slow
def test_both_engines_tell_the_same_of_stores_alone(spark: SparkSession, tmp_path: Path) -> None:
    stores = [doubles(tmp_path / "store"), *[str(GOLDEN / name / "store") for name in ("clean", "crash")]]
    named = [argument for store in stores for argument in ("--store", store)]
    tables = same(spark, tmp_path / "out", *named, "--business-key", "ORDER")
    assert {row["kind"] for row in tables["anomalies"]} == {"dead_letter"}


@pytest.mark.slow
def test_both_engines_tell_the_same_of_one_group(spark: SparkSession, tmp_path: Path) -> None:
    tables = same(spark, tmp_path / "out", written(tmp_path / "journal", ("o1", "o7", "l1")), "--group", "o7")
    assert {row["consumer_group"] for row in tables["findings"]} == {"o7"}


@pytest.mark.slow
@pytest.mark.parametrize("first", ENGINES)
def test_a_run_of_one_engine_is_continued_by_the_other(spark: SparkSession, tmp_path: Path, first: str) -> None:
    journal, out = written(tmp_path / "journal", ("o1",)), str(tmp_path / "out")
    (second,) = set(ENGINES) - {first}
    assert main([journal, "--out", out, "--engine", first]) == 1
    written(tmp_path / "more", ("o7",))
    for file in (tmp_path / "more").iterdir():
        file.rename(tmp_path / "journal" / file.name)
    assert main([journal, "--out", out, "--engine", second, "--since", "last"]) == 1
    spark.catalog.clearCache()
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "findings").to_pylist()
    assert sorted(row["consumer_group"] for row in rows) == ["o1", "o7", "o7"]
    assert json.loads((tmp_path / "out" / "verdict.json").read_bytes())["duplicates"] == 2


def test_auto_is_duckdb_for_what_is_here_and_fits_in_memory_and_spark_for_everything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "consumer-x-1.jsonl").write_bytes(b"{}\n" * 1000)
    here = [str(tmp_path)]
    assert engine_of(Request(here)) == DUCKDB
    assert engine_of(Request(here, engine=SPARK)) == SPARK
    assert engine_of(Request(here, master="local[2]")) == SPARK
    assert engine_of(Request(here, conf={"spark.driver.memory": "1g"})) == SPARK
    assert engine_of(Request(["hdfs://host/journals"])) == SPARK
    monkeypatch.setattr(workload_estimate, "SMALL_BYTES", 100)
    assert engine_of(Request(here)) == DUCKDB
    monkeypatch.setattr(workload_estimate, "free_memory_bytes", lambda: 3000 * 17 - 1)
    assert engine_of(Request(here)) == SPARK
    assert engine_of(Request(here, engine=DUCKDB)) == DUCKDB
    monkeypatch.setattr("dejamq_analytics.run.has_duckdb", lambda: False)
    assert engine_of(Request(here)) == SPARK


def test_what_duckdb_cannot_do_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="has no --master"):
        engine_of(Request([str(tmp_path)], engine=DUCKDB, master="local[2]"))
    with pytest.raises(BadInput, match="reads local journals"):
        engine_of(Request(["hdfs://host/journals"], engine=DUCKDB))
    monkeypatch.setattr("dejamq_analytics.run.has_duckdb", lambda: False)
    with pytest.raises(BadInput, match="needs DuckDB"):
        engine_of(Request([str(tmp_path)], engine=DUCKDB))


def test_a_following_audit_takes_duckdb_for_journals_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_estimate, "SMALL_BYTES", 0)
    monkeypatch.setattr(workload_estimate, "free_memory_bytes", lambda: 0)
    assert engine_of(Request([str(tmp_path)]), bounded=True) == DUCKDB
    assert engine_of(Request([str(tmp_path)], engine=SPARK), bounded=True) == SPARK
    assert engine_of(Request([str(tmp_path)], master="local[2]"), bounded=True) == SPARK


def test_sessions_know_nothing_of_one_another() -> None:
    first, second = DuckSession(), DuckSession()
    kept = Frame.kept(first, "SELECT 1 AS n")
    assert (tables(first), tables(second)) == (1, 0)
    assert kept.collect() == [(1,)]


def test_a_table_is_kept_as_long_as_a_frame_needs_it() -> None:
    session = DuckSession()
    kept = Frame.kept(session, "SELECT 1 AS n")
    more = kept.select("n").unionByName(Frame.kept(session, "SELECT 2 AS n"))
    del kept
    assert (tables(session), sorted(more.collect())) == (2, [(1,), (2,)])
    del more
    assert tables(session) == 0


def tables(session: DuckSession) -> int:
    return int(session.ask("SELECT count(*) FROM duckdb_tables()")[1][0][0])
