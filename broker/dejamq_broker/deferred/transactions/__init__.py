"""Transactions: half messages, the marks of their ends, and rounds of check-backs.

The broker owns one service, which is the only writer of its two queues. Enter at ``service``.
"""
