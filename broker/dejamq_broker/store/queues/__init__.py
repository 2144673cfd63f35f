"""Consume queues, 20 bytes a message, derived from the log.

The reput thread or the appender writes them; they may be deleted and are rebuilt. Enter at ``consume_queues``.
"""
