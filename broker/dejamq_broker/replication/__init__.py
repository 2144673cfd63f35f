"""Masters and slaves: the copied log, the copied tables, and waiting for slaves.

A broker owns one side, by its role. Enter at ``master`` and ``slave``.
"""
