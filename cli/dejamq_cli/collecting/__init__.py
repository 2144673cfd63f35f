"""Evidence from a cluster that runs, for an audit: ``dejamq collect``. It only asks, by RocketMQ's remoting protocol.

``lines`` is the format of evidence, ``files`` keeps it within a size. ``servers`` asks at a bounded rate. ``rounds``
asks about offsets, members and routes, ``trace`` follows the trace topic.

One run of the command owns all of it. Enter at ``collector``.
"""
