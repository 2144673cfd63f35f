"""Doors of the name server: each one translates a protocol into calls of the registry.

The application opens them. Enter at ``v1`` for gRPC, and at ``remoting`` for RocketMQ's own clients.
"""
