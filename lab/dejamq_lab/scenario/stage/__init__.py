"""Stages: the cluster of a scenario with its links and failpoints, as processes, in process or in containers.

A run owns one. Enter at ``stages``.
"""
