"""Scenarios on a real RocketMQ: its servers and clients are struck by the same causes, and what they leave is audited.

``scenarios`` says what is played. A ``RocketMQStage`` owns the servers and actors of one run. Enter at ``run``.
"""
