"""Records and runs of records: RocketMQ's bytes, read and written here alone.

Broker and SDK share them. Enter at ``record`` and ``run``.
"""
