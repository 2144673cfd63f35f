"""An audit of one consumer group: what it reads, and what of it the group is concerned with."""

from collections.abc import Iterable, Sequence

from dejamq_proto.names import dlq_topic, retry_topic

from dejamq_analytics.frames import SPARK, Column, DataFrame, SparkSession, using
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.journals import read_lines, readable
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.survey import chunks, wire
from dejamq_analytics.survey.chunks import Chunk


def of_group(events: DataFrame, group: str) -> DataFrame:
    """Without what other consumer groups did; a producer's group is another thing."""
    other = sf.col("group").isNotNull() & (sf.col("group") != group)
    return events.where(~other | (sf.col("role") == "producer") | sf.col("event").isin(*wire.OF_ALL_GROUPS))


def check_group(spark: SparkSession, journals: Sequence[str], events: DataFrame, group: str) -> None:
    """Raises BadInput where nothing tells of the group: of one that is misspelt every audit would be clean.

    ``events`` are those that an audit of the group reads; only to name other groups are the journals read again, by
    ``spark`` where they are not local.
    """
    if not _of_consumers(events).where(sf.col("group") == group).isEmpty():
        return
    parts = chunks.cut(journals)
    there = sorted(_groups_elsewhere(spark, journals) if parts is None else _groups_here(parts))
    named = f"; there are {', '.join(there)}" if there else ", and none of any other"
    raise BadInput(f"no line of the journals is about a consumer group {group!r}{named}")


def _groups_elsewhere(spark: SparkSession, journals: Sequence[str]) -> set[str]:
    with using(SPARK):
        others = _of_consumers(readable(read_lines(spark, journals)))
        return {row.group for row in others.select("group").distinct().collect()}


def _groups_here(parts: Iterable[Chunk]) -> set[str]:
    """In plain Python: journals may be too large for DuckDB."""
    lines = (line for part in parts for _, (_, line) in chunks.read(part))
    return {line.group for line in lines if line is not None and line.group and line.role != "producer"}


def topics_of(events: DataFrame, group: str) -> frozenset[str]:
    """Those that a line about the group names, and its own for retries and dead letters."""
    named = _of_consumers(events).where((sf.col("group") == group) & sf.col("topic").isNotNull())
    read = {row.topic for row in named.select("topic").distinct().collect()}
    return frozenset({*read, retry_topic(group), dlq_topic(group)})


def stored_for(topics: frozenset[str]) -> Column:
    """Of pairs of stored records, those that a group with these topics reads."""
    return sf.col("second.topic").isin(*topics)


def _of_consumers(events: DataFrame) -> DataFrame:
    """Lines about consumer groups; a producer's group is another thing."""
    return events.where(sf.col("group").isNotNull() & (sf.col("role") != "producer"))
