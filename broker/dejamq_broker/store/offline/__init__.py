"""Tools for a store that no broker has open: verification and promotion checks.

They change nothing. Enter at ``verify`` and ``at_rest``.
"""
