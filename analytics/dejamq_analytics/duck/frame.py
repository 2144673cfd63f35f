"""A table as the rules see it: a query that nobody has asked yet, or one whose answer is kept."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from dejamq_analytics.duck.column import Column, named, quoted
from dejamq_analytics.duck.database import Database, KeptTable
from dejamq_analytics.duck.row import Row

if TYPE_CHECKING:
    import pyarrow as pa


Named = str | Column
JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "full": "FULL JOIN", "left_semi": "SEMI JOIN", "left_anti": "ANTI JOIN"}
ONE_SIDE = ("left_semi", "left_anti")


class Frame:
    """``source`` is what stands behind FROM: a query in brackets, or the name of a kept table. ``needs`` are the kept
    tables in it.
    """

    def __init__(
        self,
        session: Database,
        source: str,
        columns: Sequence[str] | None = None,
        needs: frozenset[KeptTable] = frozenset(),
    ) -> None:
        self.sparkSession = session
        self._source, self._known, self._needs = source, columns, needs

    @classmethod
    def kept(cls, session: Database, query: str, columns: Sequence[str] | None = None) -> "Frame":
        """The answer of a query that is asked now."""
        table = session.keep(query)
        return cls(session, table.name, columns, frozenset({table}))

    @cached_property
    def columns(self) -> list[str]:
        return list(self._known) if self._known is not None else self.sparkSession.columns_of(self._source)

    def _as(self, query: str, columns: Sequence[str] | None, other: "Frame | None" = None) -> "Frame":
        """Of this frame, and of another one."""
        needs = self._needs | other._needs if other is not None else self._needs
        return Frame(self.sparkSession, f"({query})", columns, needs)

    def _list(self, columns: Sequence[Named]) -> tuple[str, list[str] | None]:
        """What stands behind SELECT, and the names that it makes; None where only DuckDB knows them."""
        texts, names, known = [], [], True
        for column in columns:
            if isinstance(column, str) and column.endswith("*"):
                known &= column == "*"
                texts.append(column)
                names += self.columns if column == "*" else []
                continue
            one = named(column)
            texts += [f"{part} AS {quoted(name)}" for part, name in zip(one.parts, one.names, strict=True)]
            names += one.names
        return ", ".join(texts), names if known else None

    def select(self, *columns: Named) -> "Frame":
        if not columns:
            return self._as(f"SELECT NULL AS nothing FROM {self._source}", [])
        texts, names = self._list(columns)
        return self._as(f"SELECT {texts} FROM {self._source}", names)

    def where(self, condition: Named) -> "Frame":
        text = condition.sql if isinstance(condition, Column) else condition
        return self._as(f"SELECT * FROM {self._source} WHERE {text}", self._known)

    def withColumn(self, name: str, column: Column) -> "Frame":
        return self.withColumns({name: column})

    def withColumns(self, columns: Mapping[str, Column]) -> "Frame":
        kept: list[Named] = [columns[name].alias(name) if name in columns else f"`{name}`" for name in self.columns]
        return self.select(*kept, *[one.alias(name) for name, one in columns.items() if name not in self.columns])

    def withColumnRenamed(self, old: str, new: str) -> "Frame":
        return self.withColumnsRenamed({old: new})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> "Frame":
        return self.select(*[named(f"`{name}`").alias(names.get(name, name)) for name in self.columns])

    def drop(self, *names: str) -> "Frame":
        return self.select(*[f"`{name}`" for name in self.columns if name not in names])

    def distinct(self) -> "Frame":
        return self._as(f"SELECT DISTINCT * FROM {self._source}", self._known)

    def limit(self, rows: int) -> "Frame":
        return self._as(f"SELECT * FROM {self._source} LIMIT {rows}", self._known)

    def orderBy(self, *columns: Named) -> "Frame":
        order = ", ".join(named(column).sql for column in columns)
        return self._as(f"SELECT * FROM {self._source} ORDER BY {order}", self._known)

    def groupBy(self, *columns: Named) -> "Grouped":
        return Grouped(self, columns)

    def agg(self, *columns: Column) -> "Frame":
        return Grouped(self, ()).agg(*columns)

    def unionByName(self, other: "Frame", allowMissingColumns: bool = False) -> "Frame":
        """Always as with ``allowMissingColumns``: a column that one of them lacks is null there."""
        if not self.columns or not other.columns:
            return self if self.columns else other
        more = [name for name in other.columns if name not in self.columns]
        query = f"SELECT * FROM {self._source} UNION ALL BY NAME SELECT * FROM {other._source}"
        return self._as(query, [*self.columns, *more], other)

    def join(self, other: "Frame", on: "str | list[str] | Column", how: str = "inner") -> "Frame":
        """On equal columns of these names, which are there once then, or on a condition."""
        keys = [] if isinstance(on, Column) else [on] if isinstance(on, str) else on
        right = [] if how in ONE_SIDE else [name for name in other.columns if name not in keys]
        left = [name for name in self.columns if name not in keys]
        if twice := set(left) & set(right):
            raise ValueError(f"both sides of the join have a column {', '.join(sorted(twice))}")
        texts = [quoted(name) for name in keys]
        texts += [f"l_.{quoted(name)}" for name in left] + [f"r_.{quoted(name)}" for name in right]
        condition = f"ON {on.sql}" if isinstance(on, Column) else f"USING ({', '.join(map(quoted, keys))})"
        query = f"SELECT {', '.join(texts)} FROM {self._source} AS l_ {JOINS[how]} {other._source} AS r_ {condition}"
        return self._as(query, [*keys, *left, *right], other)

    def crossJoin(self, other: "Frame") -> "Frame":
        return self.join(other, Column("TRUE"))

    def coalesce(self, partitions: int) -> "Frame":
        """There is one partition."""
        return self

    def localCheckpoint(self) -> "Frame":
        """Asked now, and its answer kept."""
        return Frame.kept(self.sparkSession, f"FROM {self._source}", self.columns)

    cache = localCheckpoint

    def collect(self) -> list[Row]:
        names, rows = self.sparkSession.ask(f"FROM {self._source}")
        return [Row.of(names, values) for values in rows]

    def toLocalIterator(self) -> Iterator[Row]:
        return iter(self.collect())

    def toArrow(self) -> "pa.Table":
        return self.sparkSession.arrow(f"FROM {self._source}")

    def first(self) -> Row | None:
        return next(iter(self.limit(1).collect()), None)

    def count(self) -> int:
        return int(self.sparkSession.ask(f"SELECT count(*) FROM {self._source}")[1][0][0])

    def isEmpty(self) -> bool:
        return not self.sparkSession.ask(f"SELECT 1 FROM {self._source} LIMIT 1")[1]


class Grouped:
    """Rows that belong together by ``keys``."""

    def __init__(self, frame: Frame, keys: Sequence[Named]) -> None:
        self._frame, self._keys = frame, keys

    def agg(self, *columns: Column) -> Frame:
        texts, names = self._frame._list([*self._keys, *columns])
        places = ", ".join(str(place) for place in range(1, len(self._keys) + 1))
        group = f" GROUP BY {places}" if places else ""
        return self._frame._as(f"SELECT {texts} FROM {self._frame._source}{group}", names)
