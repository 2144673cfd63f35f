"""Runs of records read, checked, made and journalled in C, where the installation found a compiler; else all of it
declines, as with unfit ones.

The rest is done in Python: by ``run.py`` and ``json_columns.py`` of ``records``, and by the SDK's ``run_records.py``.

``records`` asks it first and goes on in Python. Enter at ``_native.pyi``.
"""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

# Which parts of dejamq are compiled: those for which the installation found a C compiler.

PURE_PYTHON = "DEJAMQ_PURE_PYTHON"
"""Set in the environment it leaves all compiled parts out; the same is then done in Python, and slower."""


def compiled(module: str) -> bool:
    """Whether this module is there and wanted."""
    return not os.environ.get(PURE_PYTHON) and find_spec(module) is not None


COMPILED = compiled("dejamq_proto.native._native")

if TYPE_CHECKING or COMPILED:
    from dejamq_proto.native._native import (
        RecentIds,
        announced,
        counted,
        crcs_fit,
        id_hashes,
        join,
        keys,
        numbers,
        scan,
    )
else:
    from dejamq_proto.native.recent_ids import RecentIds

    def join(*_: object) -> None:
        """Declines."""

    announced = counted = crcs_fit = id_hashes = keys = numbers = scan = join


__all__ = [
    "COMPILED", "RecentIds", "announced", "counted", "crcs_fit", "id_hashes", "join", "keys", "numbers", "scan",
]  # fmt: skip
