"""Spark's names of types as DuckDB's: ``array<struct<first:bigint>>`` is ``STRUCT("first" BIGINT)[]``."""

import re
from functools import cache

PLAIN = {
    "string": "VARCHAR", "bigint": "BIGINT", "int": "INTEGER", "boolean": "BOOLEAN", "timestamp": "TIMESTAMP",
    "double": "DOUBLE",
}  # fmt: skip
TOKEN = re.compile(r"[a-z_0-9]+|[<>:,]", re.IGNORECASE)


@cache
def duck_type(name: str) -> str:
    """Raises KeyError for a type that the rules do not use."""
    tokens = TOKEN.findall(name)
    return _read(tokens)


def duck_columns(schema: str) -> dict[str, str]:
    """Of a schema as Spark writes one (``name type, …``): names, and DuckDB's types."""
    tokens, found = TOKEN.findall(schema), dict[str, str]()
    while tokens:
        name = tokens.pop(0)
        found[name] = _read(tokens)
        del tokens[:1]  # the comma
    return found


def _read(tokens: list[str]) -> str:
    name = tokens.pop(0)
    if name not in ("array", "map", "struct"):
        return PLAIN[name]
    tokens.pop(0)
    parts = [_part(name, tokens)]
    while tokens.pop(0) == ",":
        parts.append(_part(name, tokens))
    return f"{parts[0]}[]" if name == "array" else f"{name.upper()}({', '.join(parts)})"


def _part(inside: str, tokens: list[str]) -> str:
    if inside != "struct":
        return _read(tokens)
    field, _ = tokens.pop(0), tokens.pop(0)
    return f'"{field}" {_read(tokens)}'
