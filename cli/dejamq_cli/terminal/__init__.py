"""The terminal: tables, JSON, progress, help texts, times and numbers as people write them.

Every command prints through it. Enter at ``output``.
"""
