"""Rules of the audit: functions from DataFrame to DataFrame, with the evidence beside each decision.

The pipeline applies each once. Enter at ``pairs.stages`` and ``identity``.
"""
