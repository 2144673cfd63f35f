"""How a benchmark tells its one report."""

from collections.abc import Mapping
from typing import Any

import msgspec


def shown(report: Mapping[str, Any], output: str, width: int = 22) -> str:
    """As one line of ``json``, or a line a figure."""
    if output == "json":
        return msgspec.json.encode(report).decode()
    return "\n".join(f"{name:{width}} {value}" for name, value in report.items())
