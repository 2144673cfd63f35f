"""Anomalies beside duplicates: lost, unseen, out of order, offsets lowered, owners missing or two.

Each function is one kind. Enter at ``common`` and ``rare``.
"""
