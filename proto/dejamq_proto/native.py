"""Runs of records read, checked, made and journalled in C, where the installation found a compiler; else all of it
declines, as with unfit ones.

What is left is done in Python, by ``run.py`` and ``listed.py`` here and by the SDK's ``run_records.py``.
"""

from typing import TYPE_CHECKING

from dejamq_proto.compiled import compiled

COMPILED = compiled("dejamq_proto._native")

if TYPE_CHECKING or COMPILED:
    from dejamq_proto._native import announced, counted, crcs_fit, join, keys, numbers, scan
else:

    def join(*_: object) -> None:
        """Declines."""

    announced = counted = crcs_fit = keys = numbers = scan = join


__all__ = ["COMPILED", "announced", "counted", "crcs_fit", "join", "keys", "numbers", "scan"]
