"""Connected clients: groups, producers, heartbeats, queue locks and claims of hand-over.

They live in memory and end with their channel. Enter at ``clients``.
"""
