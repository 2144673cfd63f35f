"""An expression: its text in SQL, and the name it has in a table. Also windows, over which an expression may look."""

from collections.abc import Sequence
from typing import Any

from dejamq_analytics.duck.types import duck_type


class Column:
    """``parts`` are the columns of a table that it makes, each with one of ``names``, which may be ''. There is one, or
    two with a position.

    A struct that was made here is compared by ``order``: Spark has nulls first inside structs, and DuckDB has them
    last. Structs that come from a frame have nothing null before what decides.
    """

    def __init__(self, *parts: str, names: Sequence[str] = ("",), fraction: bool = False, order: str = "") -> None:
        self.parts, self.names, self._fraction, self.order = parts, tuple(names), fraction, order

    @property
    def sql(self) -> str:
        (only,) = self.parts
        return only

    @property
    def name(self) -> str:
        (only,) = self.names
        return only

    def alias(self, *names: str) -> "Column":
        return Column(*self.parts, names=names, fraction=self._fraction, order=self.order)

    def cast(self, kind: str) -> "Column":
        """To a whole number Spark cuts a fraction off, and DuckDB rounds it."""
        whole = self._fraction and kind in ("bigint", "int")
        return self._same(f"CAST({f'trunc({self.sql})' if whole else self.sql} AS {duck_type(kind)})")

    def try_cast(self, kind: str) -> "Column":
        return self._same(f"TRY_CAST({self.sql} AS {duck_type(kind)})")

    def over(self, window: "WindowSpec") -> "Column":
        return self._same(f"{self.sql} OVER ({window.sql})")

    def _same(self, sql: str) -> "Column":
        return Column(sql, names=self.names)

    def isNull(self) -> "Column":
        return Column(f"({self.sql} IS NULL)")

    def isNotNull(self) -> "Column":
        return Column(f"({self.sql} IS NOT NULL)")

    def isin(self, *values: Any) -> "Column":
        return Column(f"({self.sql} IN ({', '.join(map(literal, values))}))" if values else "FALSE")

    def between(self, low: Any, high: Any) -> "Column":
        return Column(f"({self.sql} BETWEEN {operand(low)} AND {operand(high)})")

    def startswith(self, start: Any) -> "Column":
        return Column(f"starts_with({self.sql}, {operand(start)})")

    def rlike(self, pattern: str) -> "Column":
        return Column(f"regexp_matches({self.sql}, {literal(pattern)})")

    def bitwiseAND(self, other: Any) -> "Column":
        return self._binary("&", other)

    def eqNullSafe(self, other: Any) -> "Column":
        return self._binary("IS NOT DISTINCT FROM", other)

    def when(self, condition: "Column", value: Any) -> "Column":
        raise TypeError("when() stands behind when() only")

    def __getitem__(self, key: Any) -> "Column":
        """A field of a struct by name, an element of a list by its place from 0, a value of a map by a column."""
        if isinstance(key, str):
            return Column(f"struct_extract({self.sql}, {literal(key)})", names=(key,))
        return Column(f"{self.sql}[{key.sql if isinstance(key, Column) else key + 1}]")

    def _binary(self, sign: str, other: Any, fraction: bool = False) -> "Column":
        return Column(f"({self.sql} {sign} {operand(other)})", fraction=fraction)

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]  # as in PySpark
        return self._binary("=", other)

    def __ne__(self, other: object) -> "Column":  # type: ignore[override]
        return self._binary("!=", other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> "Column":
        return self._binary("<", other)

    def __le__(self, other: Any) -> "Column":
        return self._binary("<=", other)

    def __gt__(self, other: Any) -> "Column":
        return self._binary(">", other)

    def __ge__(self, other: Any) -> "Column":
        return self._binary(">=", other)

    def __and__(self, other: Any) -> "Column":
        return self._binary("AND", other)

    def __or__(self, other: Any) -> "Column":
        return self._binary("OR", other)

    def __invert__(self) -> "Column":
        return Column(f"(NOT {self.sql})")

    def __add__(self, other: Any) -> "Column":
        return self._binary("+", other)

    def __radd__(self, other: Any) -> "Column":
        return Column(f"({literal(other)} + {self.sql})")

    def __sub__(self, other: Any) -> "Column":
        return self._binary("-", other)

    def __mul__(self, other: Any) -> "Column":
        return self._binary("*", other)

    def __truediv__(self, other: Any) -> "Column":
        return self._binary("/", other, fraction=True)

    def __bool__(self) -> bool:
        raise TypeError("a column is no truth value: & and | join conditions, not 'and' and 'or'")


class Case(Column):
    """``when(…).when(…)``: null where no condition holds, until ``otherwise`` ends it."""

    def __init__(self, cases: str) -> None:
        super().__init__(f"CASE{cases} END")
        self._cases = cases

    def when(self, condition: Column, value: Any) -> "Case":
        return Case(f"{self._cases} WHEN {condition.sql} THEN {operand(value)}")

    def otherwise(self, value: Any) -> Column:
        return Column(f"CASE{self._cases} ELSE {operand(value)} END")


class WindowSpec:
    """Rows that belong together, their order, and which of them count."""

    def __init__(self, partition: str = "", order: str = "", rows: str = "") -> None:
        self._parts = partition, order, rows

    @property
    def sql(self) -> str:
        return " ".join(part for part in self._parts if part)

    def partitionBy(self, *keys: "str | Column") -> "WindowSpec":
        return WindowSpec(f"PARTITION BY {', '.join(named(key).sql for key in keys)}", *self._parts[1:])

    def orderBy(self, *keys: "str | Column") -> "WindowSpec":
        return WindowSpec(self._parts[0], f"ORDER BY {', '.join(named(key).sql for key in keys)}", self._parts[2])

    def rowsBetween(self, first: int, last: int) -> "WindowSpec":
        return WindowSpec(*self._parts[:2], f"ROWS BETWEEN {_bound(first)} AND {_bound(last)}")


class Window:
    """Where a window begins, as in PySpark."""

    unboundedPreceding = -(1 << 63)
    unboundedFollowing = (1 << 63) - 1
    partitionBy = WindowSpec().partitionBy
    orderBy = WindowSpec().orderBy


def _bound(rows: int) -> str:
    if rows == Window.unboundedPreceding:
        return "UNBOUNDED PRECEDING"
    if rows == Window.unboundedFollowing:
        return "UNBOUNDED FOLLOWING"
    return f"{abs(rows)} {'PRECEDING' if rows < 0 else 'FOLLOWING'}" if rows else "CURRENT ROW"


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A Python value as SQL has it."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).upper() if isinstance(value, bool) else str(value)


def operand(value: Any) -> str:
    """What stands beside an operator: an expression, or else a value."""
    return value.sql if isinstance(value, Column) else literal(value)


def named(name: "str | Column") -> Column:
    """An argument of a function: a text there is the name of a column, or the way to a field of one (``a.b``)."""
    if isinstance(name, Column):
        return name
    if name.startswith("`"):
        return Column(quoted(name.strip("`")), names=(name.strip("`"),))
    parts = name.split(".")
    return Column(".".join(map(quoted, parts)), names=(parts[-1],))
