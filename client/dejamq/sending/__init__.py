"""From ``send`` to the broker's answer: checks, encoding, batching, retries and outcomes.

The event loop owns one ``Sender`` for each producer. Enter at ``sender``.
"""
