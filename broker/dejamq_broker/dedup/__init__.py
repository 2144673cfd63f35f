"""Messages that are sent again: which ids are known, for how long, and where the first message with an id is.

Owned by the event loop. Enter at ``deduplication.py``; docs/decisions/013 says what is guaranteed.
"""
