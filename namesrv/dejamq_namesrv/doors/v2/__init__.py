"""The door ``apache.rocketmq.v2`` of a name server: routes, and what clients ask the first address that they dial.

Belongs to the event loop. Enter at ``routes``.
"""
