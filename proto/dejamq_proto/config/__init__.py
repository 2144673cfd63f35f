"""Settings of processes: frozen dataclasses read from file, environment and flags, RocketMQ's files among them.

Each process reads its own once. Enter at ``settings``.
"""
