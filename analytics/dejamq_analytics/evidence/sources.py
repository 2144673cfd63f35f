"""The file and line behind each line of a journal that was made of evidence, for the words of findings."""

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.paths import reader, to_spark
from dejamq_analytics.sources.schema import EVIDENCE, FINDING_COLUMNS, contract

COLUMNS = {"boot_id": "string", "seq": "bigint", "source": "string", "within_us": "bigint"}
COARSE_US = 1000


def named(spark: SparkSession, findings: DataFrame, sources: Path) -> DataFrame:
    """Findings whose evidence says where each line stands, and how exact its time is where that is coarse."""
    told = _read(spark, sources)
    each = findings.select("finding_id", sf.posexplode("evidence").alias("place", "line"))
    known = told.withColumnsRenamed({"boot_id": "told_boot", "seq": "told_seq"})
    here = (sf.col("line.boot_id") == sf.col("told_boot")) & (sf.col("line.seq") == sf.col("told_seq"))
    both = each.join(known, here, how="left")
    coarse = sf.when(sf.col("within_us") > COARSE_US, sf.concat(
        sf.lit(", within "), (sf.col("within_us") / 1000).cast("bigint").cast("string"), sf.lit(" ms")
    )).otherwise(sf.lit(""))  # fmt: skip
    where = sf.concat(sf.col("line.summary"), sf.lit(" ["), sf.col("source"), coarse, sf.lit("]"))
    line = sf.struct(
        "line.process", "line.boot_id", "line.seq", "line.event",
        sf.coalesce(where, sf.col("line.summary")).alias("summary"),
    ).cast(EVIDENCE)  # fmt: skip
    placed = both.select("finding_id", sf.struct("place", line.alias("line")).alias("one"))
    whole = placed.groupBy("finding_id").agg(sf.array_sort(sf.collect_list("one")).alias("lines"))
    whole = whole.select(sf.col("finding_id").alias("of_finding"), sf.transform("lines", lambda one: one["line"]).alias(
        "told_lines"
    ))  # fmt: skip
    joined = findings.join(whole, sf.col("finding_id") == sf.col("of_finding"), how="left")
    evidence = sf.coalesce("told_lines", "evidence").alias("evidence")
    columns = [evidence if name == "evidence" else name for name in findings.columns]
    return contract(joined.select(*columns), FINDING_COLUMNS)


class Moment(NamedTuple):
    """When an act was: at this time of its machine's clock, or up to so much later. ``source`` is its file and line."""

    wall_us: int
    within_us: int
    source: str


class _Line(msgspec.Struct):
    boot_id: str
    seq: int
    source: str
    within_us: int
    wall_us: int


def moments(sources: Path, wanted: AbstractSet[tuple[str, int]]) -> dict[tuple[str, int], Moment]:
    """Of a few lines, by boot id and number."""
    found, decoder = {}, msgspec.json.Decoder(_Line)
    with sources.open("rb") as file:
        for text in file:
            line = decoder.decode(text)
            if (line.boot_id, line.seq) in wanted:
                found[line.boot_id, line.seq] = Moment(line.wall_us, line.within_us, line.source)
    return found


def _read(spark: SparkSession, sources: Path) -> DataFrame:
    if in_duckdb():
        read: DataFrame = cast(Any, spark).read_json(sources, COLUMNS)
        return read
    schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    return reader(spark, [sources]).schema(schema).json(to_spark(sources))
