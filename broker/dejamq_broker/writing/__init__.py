"""The way of a record into the log: checks of a run, overload refusals, and the writer.

The send path and the broker's own services write through it. Enter at ``record_writer``.
"""
