"""What an audit has in place of a Spark session: frames of what it reads, and the database that they are kept in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dejamq_analytics.duck.column import Column, literal, quoted
from dejamq_analytics.duck.database import Database
from dejamq_analytics.duck.frame import Frame
from dejamq_analytics.duck.types import duck_columns, duck_type


class DuckSession(Database):
    """``audit`` takes it."""

    engine = "duckdb"

    def frame(self, table: pa.Table) -> Frame:
        """The rows of an Arrow table, copied."""
        self._database.register("given", table)
        frame = Frame.kept(self, "FROM given", table.column_names)
        self._database.unregister("given")
        return frame

    def read_json(self, file: Path, columns: Mapping[str, str]) -> Frame:
        """The lines of a file with these columns, whose types have Spark's names. What is of another type is null."""
        kinds = ", ".join(f"{quoted(name)}: {literal(duck_type(kind))}" for name, kind in columns.items())
        options = f"format = 'newline_delimited', columns = {{{kinds}}}, ignore_errors = TRUE"
        return Frame.kept(self, f"FROM read_json({literal(str(file))}, {options})", [*columns])

    def read_parquet(self, folder: Path) -> Frame:
        """All its Parquet files."""
        return Frame.kept(self, f"FROM read_parquet({literal(str(folder / '*.parquet'))})")

    def createDataFrame(self, rows: Sequence[Sequence[Any]], schema: str) -> Frame:
        """Rows of these columns (``name type, …``, types with Spark's names). A struct is a mapping."""
        kinds = duck_columns(schema)
        given = self.frame(pa.table([[row[place] for row in rows] for place in range(len(kinds))], [*kinds]))
        return given.select(*[Column(f"CAST({quoted(name)} AS {kind})", names=(name,)) for name, kind in kinds.items()])

    def texts(self, name: str, values: Sequence[str]) -> Frame:
        """One column of texts."""
        every = ", ".join(map(literal, values))
        return Frame.kept(self, f"SELECT unnest(CAST([{every}] AS VARCHAR[])) AS {quoted(name)}", [name])
