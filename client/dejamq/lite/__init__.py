"""The lite pull consumer: messages when the program polls for them.

``LitePullConsumer`` owns its parts. Enter at ``consumer``.
"""
