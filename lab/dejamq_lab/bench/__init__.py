"""Throughput and latency of a cluster, with a bare gRPC echo and a bare memory copy measured in the same run.

The ratios tell a slow program from a slow machine. Each measurement starts the servers it needs when none are given.

A run of ``dejamq bench`` or ``make bench`` owns its servers. Enter at ``measure`` and ``rounds``.
"""
