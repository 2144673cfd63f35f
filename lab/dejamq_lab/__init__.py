"""Local clusters, faults and verdicts.

Names are imported when they are first used: pytest loads the plugin in this package for everybody who has dejamq
installed, and must not load gRPC and numpy with it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dejamq_lab.cluster import Cluster
    from dejamq_lab.duplicates import Delivery, Duplicate
    from dejamq_lab.errors import ClusterFailed, NotSupported

__all__ = ["Cluster", "ClusterFailed", "Delivery", "Duplicate", "NotSupported"]

_HOME = {
    "Cluster": "cluster",
    "ClusterFailed": "errors",
    "Delivery": "duplicates",
    "Duplicate": "duplicates",
    "NotSupported": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"dejamq_lab.{_HOME[name]}"), name)
