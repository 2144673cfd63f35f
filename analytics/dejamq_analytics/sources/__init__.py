"""Sources of evidence: journals and commit logs as DataFrames with explicit schemas.

Rules read them and never open a file. Enter at ``journals`` and ``facts``.
"""
