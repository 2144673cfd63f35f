"""Scenarios: a cluster, traffic, faults in order, and the cause that the audit must find. All of it is data.

A run owns its stage and its actors. Enter at ``run``.
"""
