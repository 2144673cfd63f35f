"""Local clusters, faults and verdicts.

Names are imported when they are first used: pytest loads the plugin in this package wherever dejamq is installed. The
plugin must not load gRPC and numpy with it.

Tests and commands own what they start. Enter at ``cluster.cluster``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dejamq_lab.cluster.cluster import Cluster
    from dejamq_lab.control.started import DejamqServer
    from dejamq_lab.duplicates import Delivery, Duplicate
    from dejamq_lab.errors import ClusterFailed, NotSupported

__all__ = ["Cluster", "ClusterFailed", "DejamqServer", "Delivery", "Duplicate", "NotSupported"]

_HOME = {
    "Cluster": "cluster.cluster",
    "ClusterFailed": "errors",
    "DejamqServer": "control.started",
    "Delivery": "duplicates",
    "Duplicate": "duplicates",
    "NotSupported": "errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"dejamq_lab.{_HOME[name]}"), name)
