"""The door for RocketMQ's own clients and tools: the remoting protocol.

Handlers translate into calls of the domain and decide nothing. Enter at ``door``.
"""
