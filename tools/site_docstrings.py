"""A griffe extension: examples in docstrings, from their ``>>>`` to the empty line, are code on the site."""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^(>>> (?:.|\n(?!\n))*)", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\1\n```", obj.docstring.value)
