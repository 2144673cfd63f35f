"""``dejamq audit --follow``: the same rules over journals that grow.

The command owns one follower. Enter at ``follower``.
"""
