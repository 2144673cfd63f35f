"""Journal lines of this machine as DuckDB reads them itself: in one file, since each one costs it ten milliseconds."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, cast

from dejamq_proto.journal.lines import files_in

from dejamq_analytics.frames import DataFrame, SparkSession
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.sources.journal_files import is_event
from dejamq_analytics.sources.paths import local_path
from dejamq_analytics.sources.schema import TYPES, UNREADABLE, journal_fields

COLUMNS = {name: TYPES[kind] for name, kind in journal_fields().items()}
"""Fields of a line, with Spark's names of their types."""


def read(session: SparkSession, journals: Sequence[str]) -> DataFrame:
    """As ``journals.read_lines``. Of an unreadable line it says only that it is one, and of it alone the file."""
    folders = [local_path(journal) for journal in journals]
    files = [file for folder in folders if folder is not None for file in files_in(folder)]
    return of_texts(session, (line for file in files for line in _lines(file)))


def of_texts(session: SparkSession, lines: Iterable[tuple[bytes, str]]) -> DataFrame:
    """The same for lines that somebody has read, each with the name of its file."""
    with NamedTemporaryFile(prefix="dejamq-audit-", suffix=".jsonl") as whole:
        torn = list(_copy(lines, whole))
        whole.flush()
        events: DataFrame = cast(Any, session).read_json(Path(whole.name), COLUMNS)
    unread: DataFrame = cast(Any, session).texts("file", torn).withColumn(UNREADABLE, sf.lit("unreadable"))
    return events.unionByName(unread, allowMissingColumns=True)


def _lines(file: Path) -> Iterator[tuple[bytes, str]]:
    with file.open("rb") as lines:
        for line in lines:
            yield line, file.name


def _copy(lines: Iterable[tuple[bytes, str]], whole: IO[bytes]) -> Iterator[str]:
    """The lines that can be read, to the file; the names of the others' files."""
    for line, name in lines:
        if is_event(line):
            whole.write(line if line.endswith(b"\n") else line + b"\n")
        elif line.strip():
            yield name
