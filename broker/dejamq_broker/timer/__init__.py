"""Delivery at any time (RocketMQ: TimerMessageStore): its rules, the files in which messages wait, and the service that
delivers them. The broker's event loop owns all of it. Enter at ``rules`` for what is sent, at ``service`` for the rest.
"""
