"""Producers of transactions: local transactions, their ends, and check-backs from brokers.

``TransactionProducer`` owns all of it. Enter at ``producer``.
"""
