"""Journal files by name and first line: whose they are, and which file is still the same one after a rotation."""

import zlib
from pathlib import Path

import msgspec
from dejamq_proto.journal.lines import boot_id
from dejamq_proto.loose_json import BAD_JSON

HEAD_BYTES = 4096


class _AnyEvent(msgspec.Struct):
    """Without these fields of these types a line is none of the journal."""

    event: str
    seq: int


_decode = msgspec.json.Decoder(_AnyEvent).decode


def is_event(line: bytes) -> bool:
    """Whether a line can be read as one of the journal. Any other counts as torn, JSON or not."""
    try:
        _decode(str(line, "utf-8"))
    except BAD_JSON:
        return False
    return True


def identity(path: Path) -> str:
    """The boot id and the checksum of the first line; '' while there is no whole line, and where there is no file."""
    try:
        with path.open("rb") as file:
            first = file.readline(HEAD_BYTES)
    except FileNotFoundError:  # rotated away since it was listed
        return ""
    return f"{boot_id(path)}-{zlib.crc32(first):08x}" if first.endswith(b"\n") or len(first) == HEAD_BYTES else ""
