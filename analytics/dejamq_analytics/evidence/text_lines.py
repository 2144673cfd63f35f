"""Lines of text logs: plain or gzipped, any line ends, any layout that begins with a date, in any time zone.

RocketMQ 5 clients and all servers write GMT+8, whatever the machine's zone is. A client of version 4, or one that logs
through the application's own slf4j layout, writes local time. A file whose lines also have times in milliseconds since
1970 tells its zone by itself.
"""

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from dejamq_analytics.evidence.mark import MS, SECOND
from dejamq_analytics.sources.paths import BadInput

GMT8 = timedelta(hours=8)
QUARTER_S, FARTHEST_S = 900, 14 * 3600
STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{3})\d*)?(Z|[+-]\d\d:?\d\d)?")
LEVEL_PID = re.compile(r"\s*(?:TRACE|DEBUG|INFO|WARN|ERROR)\s+\[(\d+)\]\s")
EPOCH_MS = re.compile(r"(?<![\w.])(1[5-9]\d{11}|2\d{12})(?!\w)")
ZONE_LINES = 2000
LONGEST_LINE = BLOCK = 1 << 20
CUT_OFF = (EOFError, gzip.BadGzipFile, zlib.error)
EPOCH = datetime(1970, 1, 1)
CONVERSION = re.compile(r"%[-\d.]*([a-zA-Z]+)(\{[^}]*\})?")


class Line(NamedTuple):
    """One line with a date; what stands between it and the next one with a date is left out."""

    at_us: int
    within_us: int
    number: int
    text: str
    pid: str


class LineLayout(NamedTuple):
    """How lines of an application's own log are laid out: ``pattern`` has the groups stamp, text, and pid if it is
    told.
    """

    pattern: re.Pattern[str]


def layout_of(pattern: str) -> LineLayout:
    """Of a pattern of logback or log4j, such as ``%d %-5level [%thread] %logger - %msg%n``. Raises BadInput."""
    groups = {"d": "stamp", "date": "stamp", "m": "text", "msg": "text", "message": "text", "pid": "pid"}
    found, at = "", 0
    for part in CONVERSION.finditer(pattern):
        found += re.escape(pattern[at : part.start()])
        word, at = part[1], part.end()
        name = groups.get(word)
        if word == "n":
            continue
        one = {"stamp": STAMP.pattern, "text": ".*", "pid": r"\d+"}.get(name or "", ".*?")
        found += f"(?P<{name}>{one})" if name and f"<{name}>" not in found else f"(?:{one})"
    if "<stamp>" not in found or "<text>" not in found:
        raise BadInput(f"--log-pattern needs %d and %msg: {pattern!r} has not both")
    return LineLayout(re.compile(found.replace(r"\ ", r"\s+")))


def opened(path: Path) -> BufferedReader | gzip.GzipFile:
    """Plain or gzipped: by its content, since a rotated file may be called anything."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")


def raw_lines(path: Path, clues: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; where there are ``clues``, only lines that have one of them. A gzipped file
    that was cut off or damaged ends there.

    Of a line that is longer than any of RocketMQ's only the beginning is told: it may be a file without line ends.
    """
    sought = [clue.encode() for clue in clues]
    number = 1
    for block in _blocks(path):
        counted = 0
        for begin, end in _with_one(block, sought) if sought else _every(block):
            number += block.count(b"\n", counted, begin)
            counted = begin
            yield number, block[begin : min(end, begin + LONGEST_LINE)].decode("utf-8", "replace").rstrip("\r\n")
        number += block.count(b"\n", counted)


def _blocks(path: Path) -> Iterator[bytes]:
    """Some whole lines each. The last one may lack its end."""
    rest = b""
    with opened(path) as file:
        try:
            while more := file.read1(BLOCK):
                whole, end, begun = more.rpartition(b"\n")
                if end:
                    yield rest + whole + end
                    rest = begun
                elif len(rest) < LONGEST_LINE:
                    rest += begun
        except CUT_OFF:
            return
    if rest:
        yield rest


def _every(block: bytes) -> Iterator[tuple[int, int]]:
    """Where each line begins and ends."""
    begin = 0
    while begin < len(block):
        end = block.find(b"\n", begin) + 1 or len(block)
        yield begin, end
        begin = end


def _with_one(block: bytes, clues: Sequence[bytes]) -> list[tuple[int, int]]:
    """Those that have one of the clues. To look for each through many lines at once takes a sixth of the time that
    each line takes by itself.
    """
    found = set()
    for clue in clues:
        at = block.find(clue)
        while at >= 0:
            begin, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at) + 1 or len(block)
            found.add((begin, end))
            at = block.find(clue, end)
    return sorted(found)


def lines_of(
    path: Path, zone: timedelta, layout: LineLayout | None = None, clues: Collection[str] = ()
) -> Iterator[Line]:  # fmt: skip
    """Lines that begin with a date, in its time zone; where there are ``clues``, only lines that have one of them."""
    for number, text in raw_lines(path, clues):
        line = _line(number, text, zone, layout)
        if line is not None:
            yield line


def _line(number: int, text: str, zone: timedelta, layout: LineLayout | None) -> Line | None:
    pid = ""
    if layout is not None and (laid := layout.pattern.match(text)):
        parts = laid.groupdict()
        stamp, rest, pid = STAMP.match(parts["stamp"]), parts["text"], parts.get("pid") or ""
    else:
        stamp = STAMP.match(text)
        rest = text[stamp.end() :] if stamp else ""
        if stamp and (told := LEVEL_PID.match(rest)):
            pid = told[1]
    if stamp is None:
        return None
    at_us = stamp_us(stamp, zone)
    return None if at_us is None else Line(at_us, MS if stamp[3] else SECOND, number, rest, pid)


def stamp_us(stamp: re.Match[str], zone: timedelta) -> int | None:
    """A match of ``STAMP`` in µs since 1970, in its own zone or else this one; None for a time that there is not."""
    second = _second(stamp[1], stamp[2])
    if second is None:
        return None
    if told := stamp[4]:
        zone = offset_of(told)
    return (second - round(zone.total_seconds())) * SECOND + int(stamp[3] or 0) * MS


@lru_cache(64)
def _second(day: str, time: str) -> int | None:
    """Since 1970; None for a day or time that there is not."""
    try:
        return round((datetime.fromisoformat(f"{day}T{time}") - EPOCH).total_seconds())
    except ValueError:
        return None


def offset_of(text: str) -> timedelta:
    """Of ``+08:00``, ``-0530`` or ``Z``. Raises BadInput."""
    if text in ("Z", "UTC", "GMT"):
        return timedelta(0)
    told = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text)
    if told is None:
        raise BadInput(f"a time zone is told as +08:00, not {text!r}")
    offset = timedelta(hours=int(told[2]), minutes=int(told[3]))
    return -offset if told[1] == "-" else offset


class Zone(NamedTuple):
    """The zone of a file's times, and how it is known."""

    offset: timedelta
    how: str


AS_TOLD, BY_LINES, BY_OTHERS, USUAL = (
    "as told", "by times in its lines", "as in other logs of version 4", "the usual one of RocketMQ"
)  # fmt: skip


def zones_of(paths: Mapping[Path, str], told: Mapping[str, timedelta]) -> dict[Path, Zone]:
    """The zone of each file's times. ``told`` by the user: a part of the path as it is shown, '' for all others.

    A log of a client of version 4 is in local time. Where it does not tell its zone, it is taken to have that of the
    other ones, if they agree.
    """
    found = {path: _zone_of(path, shown, told) for path, shown in paths.items()}
    local = {path for path in found if _is_of_version_4(path)}
    known = {found[path].offset for path in local if found[path].how == BY_LINES}
    for path in local:
        if found[path].how == USUAL and len(known) == 1:
            found[path] = Zone(next(iter(known)), BY_OTHERS)
    return found


def _zone_of(path: Path, shown: str, told: Mapping[str, timedelta]) -> Zone:
    for part, offset in told.items():
        if part and part in shown:
            return Zone(offset, AS_TOLD)
    if "" in told:
        return Zone(told[""], AS_TOLD)
    found: Counter[int] = Counter()
    for number, text in raw_lines(path):
        if number > ZONE_LINES:
            break
        found.update(_quarters(text))
    if found:
        quarters, times = found.most_common(1)[0]
        if times * 2 > sum(found.values()):
            return Zone(timedelta(seconds=quarters * QUARTER_S), BY_LINES)
    return Zone(GMT8, USUAL)


def _is_of_version_4(path: Path) -> bool:
    """Its first date has a comma before the milliseconds."""
    for _, text in raw_lines(path):
        if stamp := STAMP.match(text):
            return stamp[3] is not None and text[stamp.start(3) - 1] == ","
    return False


def _quarters(text: str) -> set[int]:
    """In quarters of an hour: what the date of this line is ahead of the newest time in it."""
    stamp = STAMP.match(text)
    if stamp is None or stamp[4]:
        return set()
    at_us = stamp_us(stamp, timedelta(0))
    times = [int(one) for one in EPOCH_MS.findall(text)]
    if at_us is None or not times:
        return set()
    ahead_s = at_us / SECOND - max(times) / 1000
    quarters = round(ahead_s / QUARTER_S)
    near = abs(ahead_s - quarters * QUARTER_S) < 60 and abs(ahead_s) <= FARTHEST_S
    return {quarters} if near else set()
