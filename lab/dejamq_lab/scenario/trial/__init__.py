"""The judge on trial: many runs of known truth, audited together, and how well the audit named the causes.

``make trial`` owns a run. Enter at ``command``.
"""
