"""The log of a slave: bytes of its master, checked and appended as they are.

The slave's side of replication is the only writer. Enter at ``writer``.
"""
