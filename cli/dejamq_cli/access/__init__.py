"""Access to a cluster for commands: admin sessions, topic readers, senders, health, completion.

A command owns what it opens. Enter at ``admin_session``.
"""
