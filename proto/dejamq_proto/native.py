"""Runs of records read and made in C, where the installation found a compiler; else both decline, as with unfit ones.

What they leave is done in Python, by ``run.py`` here and by the SDK's ``run_records.py``.
"""

from typing import TYPE_CHECKING

from dejamq_proto.compiled import compiled

COMPILED = compiled("dejamq_proto._native")

if TYPE_CHECKING or COMPILED:
    from dejamq_proto._native import join, scan
else:

    def join(*_: object) -> None:
        """Declines."""

    scan = join


__all__ = ["COMPILED", "join", "scan"]
