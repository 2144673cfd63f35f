"""Values of a SQL92 filter and how two of them compare: Java's rules, because RocketMQ evaluates in Java.

A property is a text, always. Against a number it is read as a number of that number's kind. A text that is not of that
kind cannot be compared at all. ``a > 5`` with ``a`` = ``5.5`` is an error, since 5 is an Integer and 5.5 is not.
Source: RocketMQ ``ComparisonExpression.__compare``; Java ``Integer.valueOf``, ``Double.valueOf``, ``Double.compareTo``.
"""

import math
import re
from collections.abc import Callable

Value = bool | int | float | str | None

INTEGERS, LONGS = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)
WHOLE = re.compile(r"[+-]?\d+")
DECIMAL = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?[fFdD]?)", re.ASCII)
HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++\.?|[0-9a-fA-F]*+\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?")
TRIMMED = "".join(map(chr, range(33)))


class Incomparable(ValueError):
    """Two values that RocketMQ fails to compare. A message with which that happens is not matched."""


class Long(int):
    """A whole number that was written too large for Java's Integer; texts beside it may be as large."""

    def __neg__(self) -> "Long":
        return Long(-int(self))


def compare(left: Value, right: Value) -> int:
    """Below 0, 0 or above 0 as ``left`` is smaller than, equal to or larger than ``right``; neither is None.

    Things of kinds that have no order, such as a boolean and a number, count as smaller. Raises Incomparable.
    """
    if type(left) is not type(right):
        if isinstance(left, str):
            left = READERS[type(right)](left)
        elif isinstance(left, bool):
            if isinstance(right, str):  # RocketMQ takes the boolean for the text here, and fails
                raise Incomparable(f"{left} on the left of a text")
            return -1
        elif isinstance(right, bool):
            return -1
        elif isinstance(right, str):
            right = READERS[type(left)](right)
        if isinstance(left, float) or isinstance(right, float):
            left, right = float(left), float(right)  # type: ignore[arg-type]  # both are numbers by now
    return _order(left, right)


def read_double(text: str) -> float:
    """As Java's ``Double.valueOf``. Raises Incomparable for a text that is no number."""
    trimmed = text.strip(TRIMMED)
    if DECIMAL.fullmatch(trimmed):
        return float(trimmed if trimmed.endswith(("NaN", "Infinity")) else trimmed.rstrip("fFdD"))
    wide = HEXADECIMAL.fullmatch(trimmed)
    if wide is None:
        raise Incomparable(f"{text!r} is no number")
    try:
        return float.fromhex(wide[1])
    except OverflowError:
        return -math.inf if trimmed.startswith("-") else math.inf


def _read_whole(text: str, most: range) -> int:
    """ASCII and other decimal digits of Unicode's first plane, as Java has them; no blanks."""
    if not WHOLE.fullmatch(text) or max(text) > "\uffff" or len(text) > 4000 or int(text) not in most:
        raise Incomparable(f"{text!r} is no whole number of {most.start.bit_length()} bits")
    return int(text)


def _read_bool(text: str) -> bool:
    return text.lower() == "true"


READERS: dict[type, Callable[[str], Value]] = {
    bool: _read_bool,
    int: lambda text: _read_whole(text, INTEGERS),
    Long: lambda text: Long(_read_whole(text, LONGS)),
    float: read_double,
}


def _order(left: Value, right: Value) -> int:
    if isinstance(left, float) and isinstance(right, float) and not (left < right or left > right):
        return _rank(left) - _rank(right)
    return (left > right) - (left < right)  # type: ignore[operator]  # of one kind by now


def _rank(value: float) -> int:
    """Java's total order among doubles that compare equal or not at all: -0.0, 0.0, then NaN, larger than all."""
    if math.isnan(value):
        return 2
    return 0 if value == 0 and math.copysign(1, value) < 0 else 1
