"""Bytes between processes: hot messages by hand, frames over TCP, gRPC channels and errors.

Both ends of a connection share them. Enter at ``messages`` and ``calling``.
"""
