"""Spark around the audit: its session, its Java, its end by Ctrl-C.

The command owns one session. Enter at ``session``.
"""
