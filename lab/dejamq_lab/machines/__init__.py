"""Programs that are not ours: the container engine, jars from Maven, a real RocketMQ.

The lab starts and ends them. Enter at ``engine`` and ``rocketmq``.
"""
