"""Facts that every rule reads: the journals and stores of an audit, parsed once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from dejamq_analytics.frames import DataFrame, SparkSession, in_duckdb
from dejamq_analytics.sources.overlap import Overlap

AT_ONCE = 2
One = TypeVar("One")
Other = TypeVar("Other")


class Counted(NamedTuple):
    """How many messages there are, deliveries by group, and what several groups had of one topic, where the frames have
    only those that may matter.
    """

    messages: int
    deliveries: dict[str, int]
    overlap: Overlap = Overlap()


class Facts(NamedTuple):
    """Facts of the journals and stores, parsed once and kept while an audit runs.

    With ``counted`` they leave out messages that no finding can rest on (``survey``). ``topics``: the topics of the
    one audited group; None: all groups are audited.
    """

    events: DataFrame
    processes: DataFrame
    deliveries: DataFrame
    appends: DataFrame
    sends: DataFrame
    brokers: DataFrame
    counted: Counted | None = None
    topics: frozenset[str] | None = None


def settled(frame: DataFrame) -> DataFrame:
    """Computed once and kept. On a local master the way it was made is forgotten too: a plan on top of many others
    takes Spark longer to prepare than to run. Elsewhere a lost executor must be able to compute its part again.
    """
    if in_duckdb():
        return frame.localCheckpoint()
    master = frame.sparkSession.sparkContext.master or ""
    return in_one(frame).localCheckpoint() if master.startswith("local") else frame.cache()


def let_go(session: SparkSession) -> None:
    """Forget what was kept. DuckDB keeps a table no longer than a frame needs it."""
    if not in_duckdb():
        session.catalog.clearCache()


def some(frame: DataFrame) -> DataFrame | None:
    """``settled``; None where there is nothing, as most journals have nothing of most things."""
    kept = settled(frame)
    return None if kept.isEmpty() else kept


def rare(frame: DataFrame) -> DataFrame:
    """The same for what goes into joins: of what it knows to be empty Spark leaves out whatever rests on it."""
    kept = settled(frame)
    return kept.limit(0) if kept.isEmpty() else kept


def both(one: Callable[[], One], other: Callable[[], Other]) -> tuple[One, Other]:
    """Two steps that do not wait for one another: Spark makes a plan in one thread, and for little that is the work.

    Raises what one of them raised, when both have ended.
    """
    if in_duckdb():  # plans take it no time
        return one(), other()
    with ThreadPoolExecutor(1) as beside:
        second = beside.submit(other)
        first = one()
        return first, second.result()


def all_of(keep: Callable[[DataFrame], DataFrame], *frames: DataFrame) -> list[DataFrame]:
    """Each ``settled`` or ``rare``, for the same reason a few at a time."""
    if in_duckdb():
        return [*map(keep, frames)]
    with ThreadPoolExecutor(AT_ONCE) as steps:
        return list(steps.map(keep, frames))


def in_one(frame: DataFrame) -> DataFrame:
    """In one partition where everything else is (``session.in_one_place``): then no step has rows to exchange."""
    if in_duckdb():
        return frame
    alone = frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return frame.coalesce(1) if alone else frame
