"""The index of messages by key, derived from the log.

One thread feeds it behind the appends. Enter at ``index`` and ``query``.
"""
