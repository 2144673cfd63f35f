"""Rows that were collected, as PySpark hands them over."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any


class Row(tuple[Any, ...]):
    """Values by place, by name (``row["n"]``) and as attributes."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], values: Sequence[Any]) -> "Row":
        row = cls(map(_python, values))
        row.names = tuple(names)
        return row

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)

    def __getattribute__(self, name: str) -> Any:
        """A column wins over a method of tuples: ``count`` and ``index`` are names of columns too."""
        if not name.startswith("_") and name != "names" and name in self.names:
            return self[name]
        return super().__getattribute__(name)

    def asDict(self, recursive: bool = False) -> dict[str, Any]:
        values = map(_plain, self) if recursive else self
        return dict(zip(self.names, values, strict=True))

    def __reduce__(self) -> Any:
        return Row.of, (self.names, tuple(self))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.names, self, strict=True))})"


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _python(value: Any) -> Any:
    """Structs as rows; times in the machine's zone and without saying so, as from Spark."""
    if isinstance(value, dict):
        return Row.of(tuple(value), tuple(value.values()))
    if isinstance(value, list):
        return [_python(one) for one in value]
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
    return value
