"""What people would pick instead, started beside dejamq: each with its own trusted client, by the same loads.

A peer that is not installed is skipped with one line that says what to install.
"""

from dejamq_lab.bench.peers.started import NAMES, absence, started

__all__ = ["NAMES", "absence", "started"]
