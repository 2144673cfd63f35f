"""One message stored twice: retries, transactions, delays, replays, and sends that were repeated.

The pipeline applies them after identity. Enter at ``stored_twice``.
"""
