"""RocketMQ 5's gRPC protocol, ``apache.rocketmq.v2``: its messages, and the parts of answers that both servers make.

Nothing here knows a broker or a name server, and nothing waits. Enter at ``methods``.
"""
