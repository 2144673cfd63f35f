"""Columns as JSON lists that lines of the journal take in as they are, without an object for each element.

The result is a ``msgspec.Raw``. It stands in an event in place of its list, and is only ever written.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dejamq_proto import native
from dejamq_proto.records.run import Ints, Run, unique_keys

Listed = Any
"""``msgspec.Raw``, typed as whatever it stands for."""

_encode = msgspec.json.Encoder().encode


def values(some: Sequence[Any]) -> Listed:
    """Of what is a list already."""
    return msgspec.Raw(_encode(some))


def counted(first: int, end: int) -> Listed:
    """The numbers ``first`` to ``end`` - 1."""
    return _raw(native.counted(first, end)) or values(list(range(first, end)))


def numbers(column: Ints, first: int, end: int) -> Listed:
    """Elements ``first`` to ``end`` - 1."""
    return _raw(native.numbers(column, first, end)) or values(column[first:end].tolist())


def keys(run: Run, first: int, end: int) -> Listed | None:
    """UNIQ_KEY of these records, where the compiled part finds it; None: ask ``run.unique_keys``."""
    return _raw(native.keys(run.data, run.properties_at, first, end))


def all_keys(run: Run) -> Listed:
    """UNIQ_KEY of each record, '' without one."""
    return keys(run, 0, len(run)) or values(unique_keys(run))


def joined(lists: Sequence[Listed]) -> Listed:
    """One list of all their elements; none of them is empty."""
    if len(lists) == 1:
        return lists[0]
    return msgspec.Raw(b"[%b]" % b",".join([bytes(one)[1:-1] for one in lists]))


def _raw(text: bytes | None) -> Listed | None:
    return None if text is None else msgspec.Raw(text)
