"""Tables that survive a restart: topics, subscription groups, and consumer offsets.

The broker owns one of each and writes them in RocketMQ's JSON. Enter at ``topics`` and ``offsets``.
"""
