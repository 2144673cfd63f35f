"""Ownership of queues: membership, rounds of allocation, locks, claims of hand-over, and broadcasting.

A started consumer owns one rebalancer. Enter at ``rebalancer``.
"""
