"""Handlers at work: workers, ordered consumption, timeouts, results and retries.

A started consumer owns one dispatcher. Enter at ``dispatcher``, or at ``ordered_dispatcher`` for ordered groups.
"""
