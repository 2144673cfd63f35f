"""Consumer groups for ``dejamq group``: lists, findings, plans.

Pure rows from answers of servers. Enter at ``view``.
"""
