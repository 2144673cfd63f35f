"""Chunks one after the other in this process, by DuckDB."""

from pathlib import Path
from typing import Any, cast

from dejamq_analytics.follow.follower import Follower
from dejamq_analytics.frames import DataFrame, SparkSession
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.local_lines import COLUMNS
from dejamq_analytics.sources.schema import UNREADABLE


class InTurn:
    """A ``Taker``. The follower's own state says which chunks are in."""

    def __init__(self, session: SparkSession, spool: Path, follower: Follower) -> None:
        self._session, self._spool, self._follower = session, spool, follower

    def look(self) -> None:
        for chunk in sorted(self._spool.glob("[0-9]*.jsonl")):
            if int(chunk.stem) > self._follower.taken:
                self._follower.take(self._lines(chunk))

    settle = look

    def _lines(self, chunk: Path) -> DataFrame:
        lines: DataFrame = cast(Any, self._session).read_json(chunk, COLUMNS)
        return lines.withColumns({"file": sf.lit(chunk.name), UNREADABLE: sf.lit(None).cast("string")})

    def stop(self) -> None:
        """Nothing goes on beside the caller."""
