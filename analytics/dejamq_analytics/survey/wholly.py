"""Facts that only all lines can tell, put beside the lines that the survey took."""

from collections.abc import Iterable, Sequence

from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.rules.joins import beside
from dejamq_analytics.sources import local_lines
from dejamq_analytics.sources.facts import settled
from dejamq_analytics.sources.journals import with_unreadable
from dejamq_analytics.sources.schema import UNREADABLE, journal_schema
from dejamq_analytics.survey import places
from dejamq_analytics.survey.note import LineExtent
from dejamq_analytics.survey.order import Range
from dejamq_analytics.survey.readings import Texts

GAPS = "array<struct<first:bigint,last:bigint>>"
ROW = (
    f"known string, all_lines bigint, all_last_seq bigint, began_us bigint, ended_us bigint, holes {GAPS}"
)  # fmt: skip
RANGE = "range_boot string, place string, range_group string, first_seq bigint, last_seq bigint, reached_before bigint"


def lines(session: SparkSession, texts: Texts) -> DataFrame:
    """As ``journals.read_lines``, of these lines alone, in any engine's session."""
    if in_duckdb():
        return local_lines.of_texts(session, ((text.encode(), file) for text, file in texts.each()))
    options = {"columnNameOfCorruptRecord": UNREADABLE}
    line = sf.from_json("text", journal_schema(), options).alias("line")
    parsed = texts.frame(session).select(line, sf.col("file").alias("_file"))
    # an event has a field of that name too, which no rule reads
    return settled(with_unreadable(parsed.select("line.*", "_file").withColumn("file", sf.col("_file")).drop("_file")))


def processes(taken: DataFrame, extents: Sequence[LineExtent]) -> DataFrame:
    """``journals.processes`` of the lines that were taken, with the extent and the holes of all lines."""
    spark = taken.sparkSession
    whole = spark.createDataFrame([_row(boot, several) for boot, several in _by_boot(extents).items()], ROW)
    both = beside(taken, whole, {"known": "boot_id"})
    tail = sf.array(sf.struct((sf.col("all_last_seq") + 1).alias("first"), (sf.col("all_last_seq") + 1).alias("last")))
    gaps = sf.concat("holes", sf.when(sf.col("torn") > 0, tail).otherwise(sf.array().cast(GAPS)))
    own = {
        "lines": sf.coalesce("all_lines", "lines"), "last_seq": sf.coalesce("all_last_seq", "last_seq"),
        "first_wall_us": sf.coalesce("began_us", "first_wall_us"), "gaps": sf.coalesce(gaps, "gaps"),
        "last_wall_us": sf.coalesce("ended_us", "last_wall_us"),
    }  # fmt: skip
    return both.select(*[own.get(name, sf.col(name)).alias(name) for name in taken.columns])


def with_reached(deliveries: DataFrame, ranges: Sequence[Range]) -> DataFrame:
    """Deliveries with ``reached_before`` where the survey looked for disorder; as they are where it found no need."""
    told = [
        (one.boot_id, one.place, one.group, one.first_seq, one.last_seq, one.reached)
        for one in ranges
        if one.reached >= 0
    ]
    if not told:
        return deliveries
    known = sf.broadcast(deliveries.sparkSession.createDataFrame(told, RANGE))
    here = (sf.col("boot_id") == sf.col("range_boot")) & (sf.col("consumer_group") == sf.col("range_group"))
    here &= sf.concat_ws(places.BETWEEN, "broker_name", "topic", "queue_id") == sf.col("place")
    joined = deliveries.join(known, here & sf.col("seq").between(sf.col("first_seq"), sf.col("last_seq")), how="left")
    return joined.select(*deliveries.columns, "reached_before")


def _by_boot(extents: Iterable[LineExtent]) -> dict[str, list[LineExtent]]:
    found: dict[str, list[LineExtent]] = {}
    for extent in extents:
        found.setdefault(extent.boot_id, []).append(extent)
    return found


def _row(boot_id: str, extents: list[LineExtent]) -> tuple[str, int, int, int, int, list[dict[str, int]]]:
    return (
        boot_id, sum(one.lines for one in extents), max(one.last_seq for one in extents),
        min(one.first_wall_us for one in extents), max(one.last_wall_us for one in extents),
        [{"first": first, "last": last} for first, last in holes(extents)],
    )  # fmt: skip


def holes(extents: Iterable[LineExtent]) -> list[tuple[int, int]]:
    """Missing runs of sequence numbers, also before the first line that is left after rotation."""
    found, reached = [], 0
    for one in sorted(extents, key=lambda extent: extent.first_seq):
        if one.first_seq > reached + 1:
            found.append((reached + 1, one.first_seq - 1))
        reached = max(reached, one.last_seq)
    return found
