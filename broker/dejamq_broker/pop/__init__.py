"""Pop consumption: a group's members are given messages for a time, and acknowledge each by itself.

The event loop owns it. Who is given what stands in RocketMQ's revive topic, so that a crash forgets nothing, and a
RocketMQ that opens the store goes on. Enter at ``service``.
"""
