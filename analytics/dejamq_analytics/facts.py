"""What every rule reads: the journals and stores of an audit, parsed once."""

from typing import NamedTuple

from pyspark.sql import DataFrame


class Facts(NamedTuple):
    """What the journals and stores say, parsed once and kept while an audit runs."""

    events: DataFrame
    processes: DataFrame
    deliveries: DataFrame
    appends: DataFrame
    sends: DataFrame
    brokers: DataFrame


def settled(frame: DataFrame) -> DataFrame:
    """Computed once and kept. On a local master the way it was made is forgotten too: a plan on top of many others
    takes Spark longer to prepare than to run. Elsewhere a lost executor must be able to compute its part again.
    """
    master = frame.sparkSession.sparkContext.master or ""
    return frame.localCheckpoint() if master.startswith("local") else frame.cache()
