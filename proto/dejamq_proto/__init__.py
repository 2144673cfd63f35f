"""What any two dejamq processes must agree on: messages, records, journal lines, codes and names."""

import os

# Before gRPC is loaded: its core tells stderr of every connection that ends; our errors say it once, where it matters.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
