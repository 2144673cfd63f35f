"""The door for RocketMQ's own clients, tools and brokers: the remoting protocol.

It translates into calls of the registry. Owned by the event loop. Enter at ``requests``.
"""
