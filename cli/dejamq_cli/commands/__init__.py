"""The commands: one noun a file, which reads arguments, asks, and prints.

The command line owns them. Enter at ``topic`` for the pattern.
"""
