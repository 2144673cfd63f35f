"""Messages for a later time: delay levels, retries and dead letters; transactions are the package inside.

The broker owns one service of each kind. Enter at ``delay`` and ``retry``.
"""
