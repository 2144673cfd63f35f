"""Values without a clock or a network: messages, settings, queue selectors and allocation strategies.

Every other room imports them and nobody owns them. Enter at ``message`` and ``config``.
"""
