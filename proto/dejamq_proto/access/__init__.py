"""Who may do what: users, rules, decisions, and the right that each request of each door needs.

Pure logic and one file of users, owned by the event loop of a server. Enter at ``guard``, which doors ask.
"""
