"""Reads files of ``key=value`` lines as Java's ``Properties`` does, which reads RocketMQ's own."""

import re
from collections.abc import Mapping

from dejamq_proto.codes import ConfigError

BLANKS = " \t\f"
LINES = re.compile(rb"\r\n|\r|\n")
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read(data: bytes) -> dict[str, str]:
    """Keys with their values; the last of two lines with one key counts. Raises ConfigError for a broken ``\\u``.

    A file is UTF-8, or ISO-8859-1 as Java reads all: comments may be in any encoding. Blanks at the end of a value,
    which Java keeps, are dropped.
    """
    lines = LINES.split(data.removeprefix(BYTE_ORDER_MARK))
    told = b"\n".join(_without_comments(lines))
    try:
        text = told.decode()
    except UnicodeDecodeError:
        text = told.decode("iso-8859-1")
    return dict(_pair(line) for line in text.split("\n") if line)


def write(values: Mapping[str, str]) -> bytes:
    """As RocketMQ's servers tell their settings: sorted lines, with nothing escaped."""
    return "".join(f"{name}={value}\n" for name, value in sorted(values.items())).encode()


def _without_comments(lines: list[bytes]) -> list[bytes]:
    """Each line whole, as a backslash at its end makes it go on in the next."""
    whole: list[bytes] = []
    begun: list[bytes] = []
    for line in lines:
        rest = line.lstrip(BLANKS.encode())
        if not begun and (not rest or rest.startswith((b"#", b"!"))):
            continue
        if _goes_on(rest):
            begun.append(rest[:-1])
        else:
            whole.append(b"".join((*begun, rest)))
            begun = []
    return [*whole, b"".join(begun)] if begun else whole


def _goes_on(line: bytes) -> bool:
    return (len(line) - len(line.rstrip(b"\\"))) % 2 == 1


def _pair(line: str) -> tuple[str, str]:
    key = KEY.match(line)
    assert key is not None  # it may be empty
    separator = SEPARATOR.match(line, key.end())
    assert separator is not None
    return _plain(key.group()), _plain(line[separator.end() :].rstrip(BLANKS))


def _plain(text: str) -> str:
    """Two escapes may be the halves of one letter. A half alone is none, and is replaced."""
    plain = ESCAPE.sub(_letter, text)
    return plain if plain == text else plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _letter(escape: re.Match[str]) -> str:
    told = escape[1]
    if told == "u":
        told = escape.string[max(escape.start() - 20, 0) : escape.end() + 5]
        raise ConfigError(f"{told!r} has a \\u without four hexadecimal digits behind it")
    return chr(int(told[1:], 16)) if len(told) == 5 else LETTERS.get(told, told)
