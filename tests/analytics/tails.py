"""Histories whose killed processes lost their last lines, as SIGKILL does to journals at level ``audit``."""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from journals import History
from pyspark.sql import Row
from stories import Story

LOST_US = 100_000
"""What a process may have had in its buffer."""
Line = dict[str, Any]


def histories(name: str, write: Story, directory: Path) -> Iterator[tuple[str, list[Line]]]:
    """The story once for every tail that may be lost, each with names of its own: ``<name>-cut-<n>``.

    Each process that did not close loses its last line, its last two, and so on, and then all of them do at once.
    """
    for number, lost in enumerate(_losses(told(name, write, directory))):
        made = f"{name}-cut-{number}"
        yield made, list(_without(told(made, write, directory), lost))


def one_of_them(name: str, write: Story, directory: Path) -> bytes:
    """The journal lines of one of these histories: as well one of few as any, and always the same. Nobody loses all."""
    lines = told(name, write, directory)
    owners = [{lines[n]["boot_id"] for n in range(len(lines)) if n not in lost} for lost in _losses(lines)]
    every = {line["boot_id"] for line in lines}
    fitting = [number for number, left in enumerate(owners) if left == every]
    if not fitting:
        return b""
    number = random.Random(name).choice(fitting)
    made = f"{name}-cut-{number}"
    lost = list(_losses(lines))[number]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in _without(told(made, write, directory), lost))


def turned(rows: Iterable[Row]) -> list[str]:
    """Certain findings of cut histories with a cause that the whole one has not for that message, in words."""
    found: defaultdict[tuple[str, str], set[str | None]] = defaultdict(set)
    cut: list[tuple[str, str, Row]] = []
    for row in rows:
        name, _, number = row.message_id.rpartition("-key-")
        story, was_cut, _ = name.partition("-cut-")
        if was_cut:
            cut.append((story, number, row))
        else:
            found[story, number].add(row.cause)
    return [
        f"{row.message_id}: {row.cause} and not {found[story, number]}"
        for story, number, row in cut if row.cause and row.cause not in found[story, number]
    ]  # fmt: skip


def told(name: str, write: Story, directory: Path) -> list[Line]:
    """Every line of the story under this name, in order of time."""
    folder = directory / name
    folder.mkdir()
    history = History(folder, name)
    write(history)
    history.end()
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_bytes().splitlines()]
    return sorted((msgspec.json.decode(line) for line in lines), key=_time)


def _losses(lines: Sequence[Line]) -> Iterator[frozenset[int]]:
    """Each: the numbers of the lines that are lost together."""
    closed = {line["boot_id"] for line in lines if line.get("state") == "closed"}
    cut = [n for n, line in enumerate(lines) if line["boot_id"] not in closed and line["role"] != "harness"]
    owners = sorted({lines[n]["boot_id"] for n in cut})
    alone = [[n for n in cut if lines[n]["boot_id"] == owner] for owner in owners]
    for tail in [*alone, cut] if len(alone) > 1 else alone:
        last_us = lines[tail[-1]]["wall_us"]
        recent = [n for n in tail if last_us - lines[n]["wall_us"] < LOST_US]
        yield from (frozenset(recent[-count:]) for count in range(1, len(recent) + 1))


def _without(lines: Sequence[Line], lost: frozenset[int]) -> Iterator[Line]:
    buffering = {lines[n]["boot_id"] for n in lost}
    for number, line in enumerate(lines):
        if number not in lost:
            at_audit = line["boot_id"] in buffering and line["event"] == "STATE" and "reason" in line
            yield line | {"reason": line["reason"].replace("forensic", "audit")} if at_audit else line


def _time(line: Line) -> tuple[int, str, int]:
    return line["wall_us"], line["boot_id"], line["seq"]
