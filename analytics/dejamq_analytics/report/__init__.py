"""The outcome of an audit: verdict, tables on disk, and the page with its charts.

A run writes each once. Enter at ``verdict`` and ``page``.
"""
