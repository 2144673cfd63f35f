"""Python runs this when a process of ``compiled_parts.py`` starts: one compiled part gives way to its Python twin.

Every module takes a part by its name from ``dejamq.native`` or ``dejamq_proto.native``. So the names are changed there
before anything else is imported.
"""

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any

PARTS = {
    "join of a run": ("dejamq_proto.native", ["join"]),
    "scan of a run": ("dejamq_proto.native", ["scan"]),
    "checksums": ("dejamq_proto.native", ["crcs_fit"]),
    "announced ids": ("dejamq_proto.native", ["announced"]),
    "columns of the journal": ("dejamq_proto.native", ["counted", "numbers", "keys"]),
    "recent ids": ("dejamq_proto.native", ["id_hashes", "RecentIds"]),
    "message ids": ("dejamq.native", ["IdSource"]),
    "check of a message": ("dejamq.native", ["MessageCheck"]),
    "permutation": ("dejamq.native", ["Permutation"]),
    "stretches": ("dejamq.native", ["stretches"]),
    "shortcut of a send": ("dejamq.native", ["Shortcut"]),
    "body and id": ("dejamq.native", ["Layout", "BodyProperty", "IdProperty"]),
}
"""Name of a part: the package, and the names that it consists of."""
WITHOUT = "BENCHMARK_WITHOUT"


def leave_out(part: str) -> None:
    """From now on this process does the part in Python. Raises KeyError for a part that there is not."""
    package, names = PARTS[part]
    compiled: Any = importlib.import_module(package)
    twin = _in_python(package)
    if part == "message ids":
        ids: Any = importlib.import_module("dejamq.values.unique_id")
        ids.next_unique_id = ids._ids.take
        return
    for name in names:
        setattr(compiled, name, getattr(twin, name))
    if part == "body and id":
        importlib.import_module("dejamq.values.message")
        compiled.COMPILED = False
        importlib.import_module("dejamq.receiving.received")
        compiled.COMPILED = True


def _in_python(package: str) -> ModuleType:
    """The package once more, as it is where nothing is compiled."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.loader is not None
    twin = importlib.util.module_from_spec(spec)
    os.environ["DEJAMQ_PURE_PYTHON"] = "1"
    try:
        spec.loader.exec_module(twin)
    finally:
        del os.environ["DEJAMQ_PURE_PYTHON"]
    return twin


if part := os.environ.get(WITHOUT):
    leave_out(part)
