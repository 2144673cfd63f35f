"""Histories from journal lines: deliveries, stored records, process queues, replicas, clocks.

All other rules read them. Enter at ``deliveries`` and ``queues``.
"""
