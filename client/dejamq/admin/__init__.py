"""Questions and changes of operators: topics, groups, offsets, messages, dead letters, running clients.

``Admin`` owns one connection for each server it asks. Enter at ``admin``.
"""
