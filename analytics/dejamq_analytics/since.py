"""``--since RUN``: one table that grows run by run, each run telling only what those before it have not told.

Every run leaves ``runs/<run id>.json`` beside its tables: how far each journal went, what was asked, and which run it
continued. A run that continues another one reads all journals, because an old line may prove a new finding. It leaves
out what the chain of runs before it has told in the same words. So the chain's runs together say what one audit of
everything says now. A finding that was undetermined and is certain today is told once more.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.paths import BadInput, reader, to_spark

LAST = "last"
TOLD = {"findings": ("finding_id", "cause", "expected"), "anomalies": ("anomaly_id",)}
"""Columns by which two rows count as the same, by table."""


class RecordedRun(msgspec.Struct, kw_only=True):
    """``runs/<run id>.json``. ``extents``: the last line of each process start. ``asked``: what limited the audit."""

    schema: int = 1
    run_id: str
    since: str | None
    asked: dict[str, str]
    extents: dict[str, int]


class RunChain(NamedTuple):
    """A run to be made and the earlier ones that it continues, newest first; none for an audit of everything."""

    run: RecordedRun
    earlier: list[str]


def plan(out: Path | None, since: str | None, asked: dict[str, str], extents: dict[str, int]) -> RunChain:
    """Name the run and find what it continues. Raises BadInput for a run that is not there or asked something else.

    The same journals, asked the same and continuing the same, are the same run: it replaces its own part of the table.
    ``last`` is the newest run; without an earlier run it is an audit of everything.
    """
    if since is None:
        return RunChain(_run(None, asked, extents), [])
    if out is None:
        raise BadInput("--since needs --out: the directory that has the tables of the run")
    continued = _newest(out, extents) if since == LAST else since
    earlier = _chain(out, continued, asked)
    return RunChain(_run(continued, asked, extents), earlier)


def extents_of(processes: DataFrame) -> dict[str, int]:
    """The last sequence number of each process start."""
    rows = processes.select("boot_id", "last_seq").orderBy("boot_id").collect()
    return {row.boot_id: row.last_seq or 0 for row in rows}


def untold(table: DataFrame, name: str, out: Path, earlier: list[str]) -> DataFrame:
    """The rows of a table, ``findings`` or ``anomalies``, that no earlier run has in the same words."""
    folders = [out / name / f"run_id={run}" for run in earlier]
    words = TOLD[name]
    told = _told_here(table.sparkSession, folders, words) if in_duckdb() else _told_in_spark(table, folders, words)
    same = sf.lit(True)
    for word in words:
        same &= sf.col(word).eqNullSafe(sf.col(f"told_{word}"))
    return table.join(told, same, how="left_anti")


def _told_in_spark(table: DataFrame, folders: Sequence[Path], words: Sequence[str]) -> DataFrame:
    rows = reader(table.sparkSession, folders).schema(table.schema).parquet(*map(to_spark, folders))
    return rows.select(*[sf.col(word).alias(f"told_{word}") for word in words])


def _told_here(session: SparkSession, folders: Sequence[Path], words: Sequence[str]) -> DataFrame:
    tables = [pyarrow.parquet.read_table(folder, columns=[*words], partitioning=None) for folder in folders]
    told = pa.concat_tables(tables).rename_columns([f"told_{word}" for word in words])
    frame: DataFrame = cast(Any, session).frame(told)
    return frame


def write_run(run: RecordedRun, out: Path) -> Path:
    """After the tables, so that a run that is listed has them."""
    path = _path(out, run.run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")
    return path


def _run(since: str | None, asked: dict[str, str], extents: dict[str, int]) -> RecordedRun:
    named = [f"{boot}:{seq}" for boot, seq in sorted(extents.items())]
    named += [f"{name}={value}" for name, value in sorted(asked.items())] + ([f"since={since}"] if since else [])
    run_id = "run-" + hashlib.sha256("|".join(named).encode()).hexdigest()[:12]
    return RecordedRun(run_id=run_id, since=since, asked=asked, extents=extents)


def _newest(out: Path, extents: dict[str, int]) -> str | None:
    """The run that was written last; where that found these very journals told by an earlier one, the earlier.

    So however often nothing has grown, that is one run.
    """
    written = sorted((out / "runs").glob("run-*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not written:
        return None
    newest = _read(out, written[-1].stem)
    quiet = newest.extents == extents and newest.since is not None and _read(out, newest.since).extents == extents
    return newest.since if quiet else newest.run_id


def _chain(out: Path, since: str | None, asked: dict[str, str]) -> list[str]:
    chain: list[str] = []
    while since is not None and since not in chain:
        run = _read(out, since)
        if run.asked != asked:
            raise BadInput(f"run {since} was asked {_words(run.asked)}, this one {_words(asked)}: ask the same")
        chain.append(since)
        since = run.since
    return chain


def _words(asked: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(asked.items())) or "everything"


def _read(out: Path, run_id: str) -> RecordedRun:
    try:
        return msgspec.json.decode(_path(out, run_id).read_bytes(), type=RecordedRun)
    except FileNotFoundError:
        known = sorted(path.stem for path in (out / "runs").glob("run-*.json"))
        there = ", ".join(known) or "none"
        raise BadInput(f"no run {run_id} in {out}: there are {there}") from None
    except BAD_JSON as error:
        raise BadInput(f"{_path(out, run_id)} is damaged ({error}): audit without --since") from None


def _path(out: Path, run_id: str) -> Path:
    return out / "runs" / f"{run_id}.json"
