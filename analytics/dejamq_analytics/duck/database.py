"""One DuckDB in memory, for one audit: everything that is kept goes with it."""

import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from dejamq_analytics.duck.column import literal

if TYPE_CHECKING:
    import pyarrow as pa

SETTINGS = (
    "SET default_null_order = 'nulls_first_on_asc_last_on_desc'",  # as Spark sorts
    "SET max_expression_depth = 10000",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
)
MACROS = {
    "size(items)": "len(items)",
    # null like Spark's: where none is true and one is null
    "any_true(told)": "CASE WHEN list_contains(told, TRUE) THEN TRUE "
                      "WHEN len(list_filter(told, lambda one: one IS NULL)) = 0 THEN FALSE END",
    "once_each(items)": "list_filter(items, lambda one, place: list_position(items, one) = place)",
    "in_both(items, others)": "list_filter(items, lambda one, place: "
                              "list_contains(others, one) AND list_position(items, one) = place)",
}  # fmt: skip
"""Functions of Spark that DuckDB has under other names, or not with the same results."""

Answer = TypeVar("Answer")


class Database:
    """What asks the queries, in a thread of its own. Not to be used by two threads at once.

    A thread that works for DuckDB sees no Ctrl-C before its piece of work ends. So the caller's thread only waits.
    """

    def __init__(self) -> None:
        self._database = duckdb.connect(":memory:")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="duckdb")
        self._numbers = count()
        self._unused: deque[str] = deque()
        """Tables that nobody needs any more; the next query drops them. Any thread may add one, at any moment."""
        aside = Path(gettempdir()) / f"dejamq-audit-{os.getpid()}-{id(self):x}"  # used when memory is short
        for setting in (*SETTINGS, f"SET temp_directory = {literal(str(aside))}"):
            self._database.execute(setting)
        for name, text in MACROS.items():
            self._database.execute(f"CREATE TEMP MACRO {name} AS {text}")

    def keep(self, query: str) -> "KeptTable":
        """A table with the query's answer."""
        name = f"kept_{next(self._numbers)}"
        self._execute(f"CREATE TEMP TABLE {name} AS {query}")
        return KeptTable(self, name)

    def drop(self, name: str) -> None:
        self._unused.append(name)

    def ask(self, query: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Names of columns, and rows."""
        answer = self._execute(query)
        return [column[0] for column in answer.description or []], answer.fetchall()

    def arrow(self, query: str) -> "pa.Table":
        return self._asked(lambda: self._database.sql(query).to_arrow_table())

    def _execute(self, query: str) -> duckdb.DuckDBPyConnection:
        return self._asked(lambda: self._database.execute(query))

    def _asked(self, ask: Callable[[], Answer]) -> Answer:
        """Raises KeyboardInterrupt when the query has ended for it."""
        answer = self._asking.submit(self._ask, ask)
        try:
            return answer.result()
        except KeyboardInterrupt:
            self._database.interrupt()
            wait((answer,))
            raise

    def _ask(self, ask: Callable[[], Answer]) -> Answer:
        while self._unused:
            self._database.execute(f"DROP TABLE {self._unused.popleft()}")
        return ask()

    def columns_of(self, source: str) -> list[str]:
        return [row[0] for row in self.ask(f"DESCRIBE FROM {source}")[1]]

    def close(self) -> None:
        self._asking.shutdown()
        self._database.close()


class KeptTable:
    """A table that lives as long as a frame that needs it."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        weakref.finalize(self, database.drop, name).atexit = False
