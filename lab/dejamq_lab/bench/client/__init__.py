"""Measured clients: one process each, with its stopwatch and its result.

A measurement owns them. Enter at ``process``.
"""
