"""Throughput and latency of a cluster, with a bare gRPC echo and a bare memory copy measured in the same run.

The ratios tell a slow program from a slow machine. Each measurement starts the servers it needs when none are given.
"""
