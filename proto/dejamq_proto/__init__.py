"""Agreements between any two dejamq processes: messages, records, journal lines, codes and names.

Every other package imports it, and it imports none of ours. Enter at ``records.record`` and ``codes``.
"""

import os

# Before gRPC is loaded: its core tells stderr of every connection that ends; our errors say it once, where it matters.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Its handlers of fork are for blocking channels: with asyncio ones every other forked child crashed (grpcio 1.85), also
# children that never use a client.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
