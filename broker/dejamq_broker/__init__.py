"""The broker: stores, routes and delivers messages for clients, and keeps their groups and offsets.

A process or a test owns a ``Broker``. Enter at ``app``, then ``domain``.
"""
