"""The door ``apache.rocketmq.v2``: RocketMQ 5's official clients. It does for them what RocketMQ's proxy does.

Calls are translated into calls of the domain, and decide nothing. Owned by the event loop. Enter at ``door``.
"""
