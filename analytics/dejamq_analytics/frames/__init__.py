"""PySpark's names as the rules import them. One audit gets PySpark behind them, another one ``duck``.

Rules are written for PySpark and typed by it. ``using`` names the engine of the calls in its block; the pipeline owns
what they return. Enter at ``functions``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

SPARK, DUCKDB = "spark", "duckdb"
_engine = ContextVar("engine", default=SPARK)

if TYPE_CHECKING:
    from pyspark.sql import Column as Column
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import Row as Row
    from pyspark.sql import SparkSession as SparkSession
    from pyspark.sql import Window as Window
    from pyspark.sql import WindowSpec as WindowSpec
    from pyspark.sql import functions as functions
else:
    Column = DataFrame = Row = SparkSession = WindowSpec = object


@contextmanager
def using(engine: str) -> Iterator[None]:
    """``functions`` and ``Window`` are that engine's in this block, in this thread."""
    before = _engine.set(engine)
    try:
        yield
    finally:
        _engine.reset(before)


def in_duckdb() -> bool:
    """Whether the engine is DuckDB."""
    return _engine.get() == DUCKDB


def _functions() -> Any:
    if in_duckdb():
        from dejamq_analytics.duck import functions as of_duckdb

        return of_duckdb
    from pyspark.sql import functions as of_spark

    return of_spark


def _window() -> Any:
    if in_duckdb():
        from dejamq_analytics.duck.column import Window as OfDuckdb

        return OfDuckdb
    from pyspark.sql import Window as OfSpark

    return OfSpark


class _Chosen:
    """Looks each name up when it is used: the engine is known only then."""

    def __init__(self, choose: Callable[[], Any]) -> None:
        self._choose = choose

    def __getattr__(self, name: str) -> Any:
        return getattr(self._choose(), name)


if not TYPE_CHECKING:
    functions, Window = _Chosen(_functions), _Chosen(_window)
