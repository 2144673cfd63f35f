"""The name server: a route table that brokers fill and clients read. Name servers never talk to each other.

A process or a test owns one. Enter at ``app``, then ``registry``.
"""
