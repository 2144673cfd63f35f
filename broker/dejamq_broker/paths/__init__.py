"""The send path and the pull path: the meaning of a client's request for the store.

Every door calls them. Enter at ``send`` and ``pull``.
"""
