"""JSON as RocketMQ's writer (fastjson) leaves it: map keys may be bare numbers, and whole objects.

``{0:20,1:14}`` and ``{{"queueId":0,"topic":"T"}:100}`` are no JSON, yet RocketMQ writes and reads both. The first is in
its tables of offsets, the second in the offset file of a broadcasting consumer.
"""

import json
import re
from typing import Any

import msgspec

_NUMBER_KEY = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|([{,]\s*+)(-?\d++)(\s*+:)', re.DOTALL)
"""Possessive, and a text that never ends is taken to its end: any bytes are read once, whoever sent them."""
BAD_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not the wanted JSON: other JSON or none, no UTF-8, lists too deep in lists."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_decoder = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def loads_loose(text: str) -> Any:
    """Parse JSON whose map keys may be bare numbers. Raises ValueError.

    Only numbers that stand where a key stands are quoted; the insides of strings stay as they are.
    """
    try:
        if _SURROGATE.search(text):
            text.encode()
            msgspec.json.decode(quote_number_keys(text))  # a half of a letter alone is no text, and json takes it
        try:
            return json.loads(text)
        except ValueError:
            return json.loads(quote_number_keys(text))
    except RecursionError:
        raise ValueError("objects or lists lie too deep in one another") from None


def quote_number_keys(text: str) -> str:
    """The text with every bare number that is a key between quotes."""
    return _NUMBER_KEY.sub(_quote_key, text)


def as_json(text: str) -> bytes:
    """The text as JSON in one line, with every bare key as a text: a number by its digits, an object by its own JSON.

    Raises ValueError.
    """
    for quoted in (str, quote_number_keys, _quote_all_keys):
        try:
            return msgspec.json.format(quoted(text).encode(), indent=-1)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            why = str(error)
    raise ValueError(why)


def _quote_all_keys(text: str) -> str:
    quoted, at = _with_text_keys(text, _skip(text, 0))
    if text[at:].strip():
        raise ValueError(f"something follows at character {at}: {text[at : at + 10]!r}")
    return quoted


def _with_text_keys(text: str, at: int) -> tuple[str, int]:
    """The value that begins at ``text[at]`` with its keys as texts, and where it ends."""
    begin, end = text[at : at + 1], {"{": "}", "[": "]"}.get(text[at : at + 1], "")
    if not end:
        _, after = _decoder.raw_decode(text, at)
        return text[at:after], after
    at = _skip(text, at + 1)
    parts: list[str] = []
    while text[at : at + 1] != end:
        if parts:
            at = _expect(text, at, ",")
        part, at = _with_text_keys(text, at)
        at = _skip(text, at)
        if begin == "{":
            key = part if part.startswith('"') else json.dumps(part, ensure_ascii=False)
            value, at = _with_text_keys(text, _expect(text, at, ":"))
            part, at = f"{key}:{value}", _skip(text, at)
        parts.append(part)
    return f"{begin}{','.join(parts)}{end}", at + 1


def pairs_of_field(text: str, field: str) -> list[tuple[Any, Any]]:
    """The (key, value) pairs of the map that is this field of the object in ``text``; its keys may be objects.

    [] when the object has no such field. Raises ValueError that says where the text has another form.
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

    Keys and values are JSON of any kind. Raises ValueError that says where the text has another form.
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
