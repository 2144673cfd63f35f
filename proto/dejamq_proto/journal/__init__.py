"""The journal: the writer of its lines, and their events in the package inside.

Each process owns one writer. Enter at ``writer``.
"""
