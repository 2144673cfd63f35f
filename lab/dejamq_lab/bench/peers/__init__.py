"""Other brokers that people might choose, started beside dejamq: each has its own trusted client and the same loads.

A peer that is not installed is skipped with one line that says what to install.

A run of ``make bench`` owns the peers that it started. Enter at ``started``.
"""

from dejamq_lab.bench.peers.started import NAMES, absence, started

__all__ = ["NAMES", "absence", "started"]
