"""One record delivered twice: the stages that decide why.

``stages`` is the table, in order; the first stage that applies decides. Enter at ``stages``.
"""
