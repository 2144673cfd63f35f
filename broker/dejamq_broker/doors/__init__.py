"""Doors: each one translates a protocol into calls of the domain, and nothing behind it knows which door a call used.

The application opens them at the start and closes them first. Enter at ``services``, and at ``remoting`` for
RocketMQ's own clients.
"""
