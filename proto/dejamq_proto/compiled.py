"""Which parts of dejamq are compiled: those for which the installation found a C compiler."""

import os
from importlib.util import find_spec

PURE_PYTHON = "DEJAMQ_PURE_PYTHON"
"""Set in the environment it leaves all compiled parts out; the same is then done in Python, and slower."""


def compiled(module: str) -> bool:
    """Whether this module is there and wanted."""
    return not os.environ.get(PURE_PYTHON) and find_spec(module) is not None
