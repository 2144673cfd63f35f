"""The door ``dejamq.v1``: the gRPC service of routes and settings.

It translates and decides nothing. Enter at ``routes``.
"""
