"""Local clusters: servers in this process or as processes, their clients, ports and relays.

``Cluster`` owns what it started and ends it. Enter at ``cluster``.
"""
