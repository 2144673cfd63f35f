"""Operators' view of a broker: numbers, metrics, live settings, moved offsets, deletions.

Doors and the metrics endpoint call it. Enter at ``queries``.
"""
