"""What every rule reads: the journals and stores of an audit, parsed once."""

from typing import NamedTuple

from pyspark.sql import DataFrame


class Counted(NamedTuple):
    """How many messages there are, and deliveries by group, where the frames have only those that may matter."""

    messages: int
    deliveries: dict[str, int]


class Facts(NamedTuple):
    """What the journals and stores say, parsed once and kept while an audit runs.

    With ``counted`` they leave out messages that no finding can rest on (``survey``).
    """

    events: DataFrame
    processes: DataFrame
    deliveries: DataFrame
    appends: DataFrame
    sends: DataFrame
    brokers: DataFrame
    counted: Counted | None = None


def settled(frame: DataFrame) -> DataFrame:
    """Computed once and kept. On a local master the way it was made is forgotten too: a plan on top of many others
    takes Spark longer to prepare than to run. Elsewhere a lost executor must be able to compute its part again.
    """
    master = frame.sparkSession.sparkContext.master or ""
    return frame.localCheckpoint() if master.startswith("local") else frame.cache()
