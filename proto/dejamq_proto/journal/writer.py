"""The journal: the acts of each process, one JSON object a line, for the audit to read.

Every line carries the envelope (``v``, ``event``, ``role``, ``process``, ``boot_id``, ``seq``, ``wall_us``,
``mono_us``) and the fields of its event (``events``). High-rate events cover a run of messages: common fields once,
the varying ones as arrays of equal length. ``seq`` counts from 1 without holes; readers keep what precedes a torn last
line and count every hole as a gap. Levels: ``off``; ``audit`` (buffered, written at least every 100 ms); ``forensic``
(each line is with the kernel before its effect, so it survives SIGKILL).
"""

import asyncio
import atexit
import logging
import os
import re
import time
import uuid
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path

import msgspec

from dejamq_proto.journal.beside import BesideLoop
from dejamq_proto.journal.events import SCHEMA_VERSION, ClockJump, Event

log = logging.getLogger(__name__)
FLUSH_INTERVAL_MS = 100
BUFFER_BYTES = 1 << 16
"""A small part of what the caches of a core hold, which messages need."""
JUMP_US = 500_000
"""Smaller steps of the time of day come from a clock that is kept right."""


class Level(StrEnum):
    """How much is written and how soon; a client's STATE line tells the audit which one it was."""

    OFF = "off"
    AUDIT = "audit"
    FORENSIC = "forensic"


def new_boot_id() -> str:
    """Unique for each start of a process: 16 hex digits."""
    return uuid.uuid4().hex[:16]


class Journal:
    """Writes one process's journal. Owned by one thread; ``write`` may be called before and outside an event loop.

    ``forensic`` lines are handed to the kernel at once and survive SIGKILL; ``audit`` lines wait at most 100 ms.
    Half of ``max_bytes`` is for this file, half for the one before (``….1.jsonl``); older lines are gone, and the
    hole in ``seq`` is their counted gap.
    """

    def __init__(
        self, path: Path | None, *, role: str, process: str, boot_id: str, level: Level, max_bytes: int = 1 << 30,
        wall: Callable[[], float] = time.time, mono: Callable[[], float] = time.monotonic, beside: bool = False,
    ) -> None:  # fmt: skip
        """``beside``: a thread writes the lines of level ``audit``, so that no disk holds the caller's event loop."""
        self.path, self.level = path, level if path else Level.OFF
        self.boot_id, self._role, self._process = boot_id, role, process
        self._max_bytes, self._wall, self._mono = max_bytes, wall, mono
        self._encode = msgspec.json.Encoder().encode_into
        self._seq = self._written = 0
        self._apart_us = self._clocks_apart_us()
        self._buffer = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._told = False
        self.forensic = self.level is Level.FORENSIC
        """Callers then write a line for each delivery, before its effect, instead of gathering runs."""
        self._fd, self._pid = -1, os.getpid()
        self._beside = BesideLoop(self._write_out) if beside and self.level is Level.AUDIT else None
        if path and self.on:
            self._fd = _open(path)
            _written_here.add(self)

    def __del__(self) -> None:
        """One that nobody closed: its last lines are not lost."""
        self._keep()

    @property
    def on(self) -> bool:
        """False lets callers skip making the event."""
        return self.level is not Level.OFF

    def write(self, event: Event, *, followed: bool = False) -> None:
        """Stamp the envelope and append the line.

        The event that it is given is changed: it is written once, or filled in anew each time. Never raises for a disk
        that fails: the lines are lost, the hole in ``seq`` tells of them. ``followed``: the caller writes another line
        in this very step, before any effect of this one, and one call of the kernel takes both.
        """
        if self._fd < 0:
            return
        wall_us, mono_us = int(self._wall() * 1e6), int(self._mono() * 1e6)
        if abs(wall_us - mono_us - self._apart_us) > JUMP_US:
            self._tell_jump()
        self._seq += 1
        if not event.v:
            self.sign(event)
        event.seq, event.wall_us, event.mono_us = self._seq, wall_us, mono_us
        before = len(self._buffer)
        try:
            self._encode(event, self._buffer, -1)
        except BaseException:  # a failed write leaves no half line
            del self._buffer[before:]
            raise
        self._buffer += b"\n"
        if (self.forensic and not followed) or len(self._buffer) > BUFFER_BYTES:
            self._pass_on()
        elif not self.forensic and self._timer is None:
            self._flush_later()

    def sign(self, event: Event) -> None:
        """Fill in the fields that all lines of this journal have in common; of a template that lines are copied from,
        once.
        """
        event.v, event.role, event.process, event.boot_id = SCHEMA_VERSION, self._role, self._process, self.boot_id

    def _clocks_apart_us(self) -> int:
        return int(self._wall() * 1e6) - int(self._mono() * 1e6)

    def _tell_jump(self) -> None:
        """Looked at again first: a process that is stopped between two readings of clocks sees a jump that did not
        happen.
        """
        before_us, self._apart_us = self._apart_us, self._clocks_apart_us()
        moved_us = self._apart_us - before_us
        if abs(moved_us) > JUMP_US:
            self.write(ClockJump(jumped_ms=round(moved_us / 1000)))

    def flush(self) -> None:
        """Hand all lines to the kernel, and wait until it has them.

        To the kernel and not to the disk: lines survive the end of the process, not a power loss.
        """
        self._pass_on()
        if self._beside is not None and not self._beside.done():
            self._tell_lost("the disk does not answer")

    def _pass_on(self) -> None:
        """Write all lines, or have the thread do it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._fd < 0 or not self._buffer:
            return
        if self._beside is None:
            self._write_out(self._buffer)
            return
        lines, self._buffer = self._buffer, bytearray()
        if not self._beside.put(lines):
            self._tell_lost("the disk does not answer")

    def _write_out(self, lines: bytearray) -> None:
        """For one thread at a time. The lines are taken out."""
        try:
            if self._written and self._written + len(lines) > self._max_bytes // 2:
                self._rotate()
            self._written += len(lines)
            while lines:
                del lines[: os.write(self._fd, lines)]
        except OSError as error:
            lines.clear()
            self._tell_lost(error.strerror or str(error))

    def _tell_lost(self, reason: str) -> None:
        """The disk took no more. Messages matter more than lines about them; the hole in ``seq`` tells of it."""
        if not self._told:
            log.error("journal_lines_lost path=%s reason=%s", self.path, reason)
        self._told = True

    def _rotate(self) -> None:
        assert self.path is not None
        os.replace(self.path, self.path.with_suffix(".1.jsonl"))
        before, self._fd = self._fd, _open(self.path)
        os.close(before)
        self._written = 0

    def close(self) -> None:
        """Flush and close; may be called twice."""
        self.flush()
        if self._beside is not None:
            self._beside.end()
            if not self._beside.done(0):
                self._fd = -1  # the thread is still at it: the process ends with it open
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def abandon(self) -> None:
        """As SIGKILL leaves it: lines not handed to the kernel are lost, and nothing is written any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buffer.clear()
        if self._beside is not None:
            self._beside.drop()
        self.close()

    def _keep(self) -> None:
        """Write what waits; a forked child leaves that to its parent."""
        if getattr(self, "_fd", -1) >= 0 and self._pid == os.getpid():
            self._timer = None  # of a loop that may have ended
            self.close()

    def _flush_later(self) -> None:
        """At the end of this interval of the clock, which is the same for all journals here: many need one wake-up."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
        else:
            interval_s = FLUSH_INTERVAL_MS / 1000
            self._timer = loop.call_at((loop.time() // interval_s + 1) * interval_s, self._flush_due)

    def _flush_due(self) -> None:
        self._timer = None
        self._pass_on()


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)


_written_here: "weakref.WeakSet[Journal]" = weakref.WeakSet()


@atexit.register
def _keep_all() -> None:
    for journal in tuple(_written_here):
        journal._keep()


_gathered: ContextVar[list[Journal] | None] = ContextVar("journals", default=None)


def open_journal(
    directory: str | Path | None, *, role: str, process: str, boot_id: str, level: str, max_bytes: int = 1 << 30,
    wall: Callable[[], float] = time.time, beside: bool = False,
) -> Journal:  # fmt: skip
    """The journal of one process in ``directory`` (made if absent), or one that writes nothing without a directory.

    ``wall`` is the time of day as the process believes it. ``beside``: see ``Journal``.
    """
    if directory is None or level == Level.OFF:
        return Journal(None, role=role, process=process, boot_id=boot_id, level=Level.OFF)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / journal_name(role, process, boot_id)
    journal = Journal(
        path,
        role=role,
        process=process,
        boot_id=boot_id,
        level=Level(level),
        max_bytes=max_bytes,
        wall=wall,
        beside=beside,
    )
    gathered = _gathered.get()
    if gathered is not None:
        gathered.append(journal)
    return journal


def gather() -> list[Journal]:
    """The journals that this context, and all tasks started in it, open from now on: a process played in this one."""
    journals: list[Journal] = []
    _gathered.set(journals)
    return journals


def journal_name(role: str, process: str, boot_id: str) -> str:
    """``<role>-<process>-<boot id>.jsonl`` from letters, digits, dots and hyphens only."""
    safe = re.sub(r"[^A-Za-z0-9.-]", "-", process)
    return f"{role}-{safe}-{boot_id}.jsonl"
