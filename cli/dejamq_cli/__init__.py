"""The ``dejamq`` command: one file per noun."""
