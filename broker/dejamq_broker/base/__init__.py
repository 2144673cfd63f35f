"""Foundations of the broker: settings, identity, small JSON files, counters, periodic tasks, open streams.

The broker's application owns one of each. Enter at ``config``.
"""
