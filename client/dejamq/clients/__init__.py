"""The clients that programs see, and the order in which their parts start and stop.

A program owns them. Enter at ``producer`` and ``consumer``.
"""
