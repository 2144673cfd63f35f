"""The simple consumer: messages for a time, each acknowledged by itself.

``SimpleConsumer`` owns its parts. Enter at ``consumer``.
"""
