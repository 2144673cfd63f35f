"""One way of joining for all rules: facts beside a row that already has its own columns, and rows below rows."""

from collections.abc import Mapping, Sequence
from functools import reduce

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.facts import in_one


def beside(frame: DataFrame, facts: DataFrame, keys: Mapping[str, str], *, small: bool = True) -> DataFrame:
    """Left join of ``facts``, which has at most one row for each of its ``keys`` (its column: the frame's column).

    ``small`` facts (a row a queue, client, broker or process) are sent to where the frame is.
    """
    renamed = facts.withColumnsRenamed({name: f"key_{name}" for name in keys})
    condition = sf.lit(True)
    for name, column in keys.items():
        condition &= sf.col(f"key_{name}") == sf.col(column)
    side = sf.broadcast(renamed) if small else renamed
    return frame.join(side, condition, how="left").drop(*[f"key_{name}" for name in keys])


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of one or more frames; a column that one of them lacks is null there."""
    return in_one(reduce(lambda whole, frame: whole.unionByName(frame, allowMissingColumns=True), frames))
