"""A scenario as it is written: TOML, its steps, seeds and variants, and the ledger that knows the truth.

It is read only. Enter at ``text``.
"""
