"""Everything that both servers need to serve: binding, health, refusals, metrics, log lines.

Name server and broker share it. Enter at ``server``.
"""
