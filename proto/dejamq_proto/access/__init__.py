"""Who may do what: users, rules, decisions, and the right that each request of each door needs.

Pure logic and one file. Doors ask the ``Guard``.
"""
