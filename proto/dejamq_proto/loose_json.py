"""JSON as RocketMQ's writer (fastjson) leaves it: map keys may be bare numbers, and whole objects.

``{0:20,1:14}`` and ``{{"queueId":0,"topic":"T"}:100}`` are no JSON, yet RocketMQ writes and reads both: the first in
its tables of offsets, the second in the offset file of a broadcasting consumer.
"""

import json
import re
from typing import Any

_NUMBER_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?\d+)(\s*:)')
_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def loads_loose(text: str) -> Any:
    """Parse JSON whose map keys may be bare numbers. Raises ValueError.

    Only numbers that stand where a key stands are quoted; what is inside of strings stays as it is.
    """
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(quote_number_keys(text))


def quote_number_keys(text: str) -> str:
    """The text with every bare number that is a key between quotes."""
    return _NUMBER_KEY.sub(_quote_key, text)


def pairs_of_field(text: str, field: str) -> list[tuple[Any, Any]]:
    """The (key, value) pairs of the map that is this field of the object in ``text``; its keys may be objects.

    [] when the object has no such field. Raises ValueError that says where the text is none of that.
    """
    at = _expect(text, _skip(text, 0), "{")
    found: list[tuple[Any, Any]] = []
    while text[at : at + 1] != "}":
        name, at = _decoder.raw_decode(text, at)
        at = _expect(text, _skip(text, at), ":")
        if name == field:
            found, at = pairs_with_object_keys(text, at)
        else:
            _, at = _decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError(f"',' or '}}' expected at character {at}, there is {text[at : at + 10]!r}")
    return found


def pairs_with_object_keys(text: str, at: int) -> tuple[list[tuple[Any, Any]], int]:
    """The (key, value) pairs of the map that begins at ``text[at]``, whose keys may be objects, and where it ends.

    Keys and values are JSON of any kind. Raises ValueError that says where the text is none of that.
    """
    at = _expect(text, at, "{")
    pairs: list[tuple[Any, Any]] = []
    if text[at : at + 1] == "}":
        return pairs, at + 1
    while True:
        key, at = _decoder.raw_decode(text, at)
        at = _expect(text, _skip(text, at), ":")
        value, at = _decoder.raw_decode(text, at)
        pairs.append((key, value))
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return pairs, at + 1
        at = _expect(text, at, ",")


def _expect(text: str, at: int, sign: str) -> int:
    """Where the next thing begins after the sign that must stand here."""
    if text[at : at + 1] != sign:
        raise ValueError(f"{sign!r} expected at character {at}, there is {text[at : at + 10]!r}")
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _quote_key(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"{match[3]}'
