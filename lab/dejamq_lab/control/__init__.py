"""A server under test with its faults: ``dejamq dev --control``, and what asks it over HTTP.

The process of the command owns the server, which is a process of its own behind a relay. Enter at ``serving``.
"""
