"""The ``dejamq`` command: one file for each noun, in ``commands``.

The process owns one command. Enter at ``command_line``, then ``commands``.
"""
