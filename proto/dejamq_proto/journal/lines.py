"""Journals as files of lines, and lines as events: the one way to read them in Python."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar, Union, overload

import msgspec

from dejamq_proto.journal.events import EVENTS, Event
from dejamq_proto.journal.readings import is_whole
from dejamq_proto.loose_json import BAD_JSON

BLOCK_BYTES = 1 << 20
One = TypeVar("One", bound=Event)
Other = TypeVar("Other", bound=Event)
Third = TypeVar("Third", bound=Event)


def files_in(folder: Path) -> Iterator[Path]:
    """The journals of a directory, or the one that is named itself."""
    yield from [folder] if folder.is_file() else sorted(folder.glob("[!._]*.jsonl"))


def boot_id(path: Path) -> str:
    """From ``<role>-<process>-<boot id>[.1].jsonl``."""
    return path.name.removesuffix(".jsonl").removesuffix(".1").rpartition("-")[2]


def whole_lines(path: Path) -> Iterator[bytes]:
    """All but what is torn: the last line of a killed process may end in the middle."""
    with path.open("rb", buffering=BLOCK_BYTES) as file:
        yield from (line for line in file if line.endswith(b"}\n"))


@overload
def events(paths: Iterable[Path], one: type[One], /) -> Iterator[One]: ...
@overload
def events(paths: Iterable[Path], one: type[One], other: type[Other], /) -> Iterator[One | Other]: ...
@overload
def events(
    paths: Iterable[Path], one: type[One], other: type[Other], third: type[Third], /
) -> Iterator[One | Other | Third]: ...
@overload
def events(paths: Iterable[Path], /, *kinds: type[Event]) -> Iterator[Event]: ...
def events(paths: Iterable[Path], /, *kinds: type[Event]) -> Iterator[Event]:
    """All events of these kinds in these files. Other lines are passed over undecoded, damaged ones too."""
    beginnings = begins(*kinds)
    for path in paths:
        for line in whole_lines(path):
            if line.startswith(beginnings) and (event := decode(line, *kinds)) is not None:
                yield event


def tag_of(event: type[Event]) -> str:
    """The value of the line's ``event`` field."""
    return str(event.__struct_config__.tag)


@cache
def begins(*kinds: type[Event]) -> tuple[bytes, ...]:
    """How the lines of these events begin: their writer puts the tag first."""
    return tuple(b'{"event":"%s"' % tag_of(kind).encode() for kind in kinds)


def event_name(line: bytes) -> bytes:
    """``b"APPEND"``, without decoding."""
    return line[10 : line.find(b'"', 10)] if line.startswith(b'{"event":"') else b""


@overload
def decode(line: bytes, one: type[One], /) -> One | None: ...
@overload
def decode(line: bytes, one: type[One], other: type[Other], /) -> One | Other | None: ...
@overload
def decode(line: bytes, /, *kinds: type[Event]) -> Event | None: ...
def decode(line: bytes, /, *kinds: type[Event]) -> Event | None:
    """An event of these kinds, or without kinds of any. None for a line that is damaged, or of another event."""
    try:
        event = _decoder(*kinds).decode(line)
    except BAD_JSON:
        return None
    return event if is_whole(event) else None


@cache
def _decoder(*kinds: type[Event]) -> msgspec.json.Decoder[Event]:
    return msgspec.json.Decoder(Union[kinds or EVENTS])  # noqa: UP007  # a tuple of types
