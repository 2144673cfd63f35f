"""The commit log: appends, reads behind the appends, scans and syncs.

One writer appends under one lock. Enter at ``commit_log`` and ``append``.
"""
