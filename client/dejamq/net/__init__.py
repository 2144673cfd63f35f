"""Connections of one client to name servers and brokers: transports, streams, routes and heartbeats.

``Instance`` owns all of them, one for each client. Enter at ``instance``.
"""
