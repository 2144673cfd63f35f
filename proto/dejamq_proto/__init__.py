"""What any two dejamq processes must agree on: messages, records, journal lines, codes and names."""

import os

# Before gRPC is loaded: its core tells stderr of every connection that ends; our errors say it once, where it matters.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Its handlers of fork are for blocking channels: with asyncio ones every other forked child crashed (grpcio 1.85), also
# children that never use a client.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
