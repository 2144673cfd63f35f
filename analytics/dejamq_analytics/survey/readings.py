"""What a survey needs of whoever reads journals for it: Spark (``spark_readings``), or processes of this machine
(``processes``)."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from dejamq_analytics.frames import DataFrame, SparkSession
from dejamq_analytics.survey.keys import Candidates
from dejamq_analytics.survey.note import Note
from dejamq_analytics.survey.pick import WantedLines


class Texts(Protocol):
    """Lines of journals, each with the name of its file."""

    def size(self) -> int:
        """Their bytes, about."""

    def each(self) -> Iterator[tuple[str, str]]:
        """One after the other, in no order."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """In the columns text and file, for Spark alone."""


class Readings(Protocol):
    """Two readings of some journals. Both raise BadInput when a journal goes away meanwhile."""

    def first(self) -> list[Note]:
        """Look at all lines."""

    def judged(self, brokers_known: bool) -> Iterable[Candidates]:
        """The candidates of each bucket that the first reading filled. Only once."""

    def second(self, wanted: WantedLines, *, with_kept: bool) -> Texts:
        """The lines that are wanted; with those that the first reading kept, or without."""
