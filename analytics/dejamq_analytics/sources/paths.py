"""Paths that users give, and how Spark takes them.

A user's text is a path of this machine, letter by letter, unless it is a URI (``hdfs://…``). Spark reads patterns
(``[a-z]*``, ``{a,b}``) where it reads, and takes no percent-encoding back anywhere.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
FILE = re.compile(r"file:(?://(?:localhost)?)?(?=/)")
PATTERN_LETTERS = re.compile(r"[\\{}\[\]*?]")


class BadInput(ValueError):
    """Input that cannot be audited; the text names the remedy."""


def local_path(given: str) -> Path | None:
    """The path of a plain name or ``file:/`` URI, None for other stores."""
    if of_file := FILE.match(given):
        return Path(unquote(given[of_file.end() :]))
    return None if SCHEME.match(given) else Path(given)


def to_spark(given: str | Path) -> str:
    """The name by which Spark writes to this very path, or reads it with ``reader``. Raises BadInput."""
    path = local_path(given) if isinstance(given, str) else given
    if path is None:
        return str(given)
    text = str(path.resolve())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"Spark takes only UTF-8 names, not {text!r}: rename the folder") from None
    return f"file://{text}"


def reader(spark: "SparkSession", givens: Iterable[str | Path]) -> "DataFrameReader":
    """For ``to_spark`` of these. Names of other stores may be patterns."""
    local = all(isinstance(given, Path) or local_path(given) is not None for given in givens)
    return spark.read.option("__globPaths__", "false") if local else spark.read


def to_stream(path: Path) -> str:
    """The name by which a streaming query reads this very path: it takes every name for a pattern. Raises BadInput."""
    text = to_spark(path)
    if not PATTERN_LETTERS.search(text):
        return text
    if ":" in text.removeprefix("file:"):
        raise BadInput(f"Spark cannot follow where a name has both a colon and one of {{}}[]*?\\: not {str(path)!r}")
    return PATTERN_LETTERS.sub(r"\\\g<0>", text)
