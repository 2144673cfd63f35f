"""How far timed messages have been handled: ``config/timercheck`` in RocketMQ's format (``TimerCheckpoint``)."""

import os
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from dejamq_proto.journal.events import ProgressFlush, ProgressLoad
from dejamq_proto.journal.writer import Journal

from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.store.files.directories import make_directory

_THEIRS = struct.Struct(">7q")
_OURS = struct.Struct(">5q")
OURS_AT = 64
"""Numbers of ours: the slot of ``slot_done``, that number, the precision of the wheel, ``queue_offset`` again, and
``window_ms``.

RocketMQ leaves them as they are.
"""
NO_WHEEL = -1
"""In place of the precision: the wheel does not hold what waits. A RocketMQ is told then that it has seen nothing."""
FILE_SIZE = 4096


class Reached(msgspec.Struct, frozen=True):
    """Slots before ``read_ms`` are done, and of that one ``slot_done`` units. Messages of the timer topic before
    ``queue_offset`` are delivered, or wait in the wheel. ``log_end`` is that of the timer log.

    ``window_ms``: the longest wait in one place of those that are delivered; 0: RocketMQ's, which is not told.
    ``in_wheel`` is False as long as the wheel has still to be made of the timer topic.
    """

    read_ms: int = 0
    queue_offset: int = 0
    slot_done: int = 0
    log_end: int = 0
    in_wheel: bool = True
    window_ms: int = 0
    handled: int = 0
    """Units that this start has handled: time that passes without any is nothing to write."""


class TimerProgress:
    """Written about once a second. After a crash, messages delivered since are delivered once more (cause B4)."""

    def __init__(
        self, path: Path, broker_name: str, journal: Journal, precision_ms: int,
        log_on_disk: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """``log_on_disk`` is awaited before each write: a delivery that a power loss takes back is to be made again."""
        self.path, self._broker_name, self._journal = path, broker_name, journal
        self._precision_ms, self._log_on_disk = precision_ms, log_on_disk
        self._reached, self._written = Reached(), Reached()
        self.found_ms = 0
        """The precision of the wheel beside the file, as far as it is known; 0: it is not."""

    def load(self) -> None:
        """Read the file, if there is one. One that is too short tells nothing. Raises OSError."""
        raw = self.path.read_bytes() if self.path.exists() else b""
        if len(raw) >= _THEIRS.size:
            read_ms, log_end, queue_offset, *_ = _THEIRS.unpack_from(raw)
            slot_ms, done, self.found_ms, offset, window_ms = _OURS.unpack_from(raw.ljust(FILE_SIZE, b"\0"), OURS_AT)
            done, in_wheel = done if slot_ms == read_ms else 0, self.found_ms != NO_WHEEL
            self._reached = self._written = Reached(
                max(0, read_ms), max(0, queue_offset if in_wheel else offset), done, max(0, log_end), in_wheel,
                max(0, window_ms),
            )  # fmt: skip
        self._journal.write(ProgressLoad(
            broker_name=self._broker_name, service="timer", source="main" if raw else "none",
            progress=_text(self._reached),
        ))  # fmt: skip

    @property
    def reached(self) -> Reached:
        return self._reached

    def set(self, reached: Reached) -> None:
        """In memory; ``flush`` makes it last."""
        self._reached = reached

    def content(self) -> dict[str, int]:
        """As slaves get it."""
        reached = self._reached
        return {"read_ms": reached.read_ms, "queue_offset": reached.queue_offset, "window_ms": reached.window_ms}

    def take_copy(self, read_ms: int, queue_offset: int, window_ms: int = 0) -> None:
        """A slave takes its master's progress; a master that does not tell it has zeros."""
        if read_ms:
            self._reached = Reached(read_ms, queue_offset, in_wheel=False, window_ms=window_ms)

    def begin_anew(self) -> None:
        """The wheel is made again, of the timer topic: a start that comes before it is done has to begin again too.

        Raises OSError.
        """
        before = self._reached
        self._reached = Reached(before.read_ms, before.queue_offset, in_wheel=False, window_ms=before.window_ms)
        self._write(self._reached)
        self._written = self._reached

    async def flush(self, sync_files: Callable[[], None]) -> None:
        """Write the file when anything moved since the last time; a write that fails is made up for by the next.

        ``sync_files`` has the wheel and the timer log on disk; it runs beside the loop.
        """
        reached = self._reached
        if _work(reached) == _work(self._written):
            return
        await self._log_on_disk()
        await beside_loop(sync_files)
        self._journal.write(ProgressFlush(broker_name=self._broker_name, service="timer", progress=_text(reached)))
        await beside_loop(self._write, reached)
        self._written = reached

    def _write(self, reached: Reached) -> None:
        """In one piece that no power loss divides: it lies in one sector."""
        make_directory(self.path.parent)
        seen = reached.queue_offset if reached.in_wheel else 0
        theirs = _THEIRS.pack(reached.read_ms, reached.log_end, seen, seen, 0, 0, 0).ljust(OURS_AT, b"\0")
        precision_ms = self._precision_ms if reached.in_wheel else NO_WHEEL
        ours = _OURS.pack(reached.read_ms, reached.slot_done, precision_ms, reached.queue_offset, reached.window_ms)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(file).st_size != FILE_SIZE:
                os.ftruncate(file, FILE_SIZE)
            os.pwrite(file, theirs + ours, 0)
            os.fdatasync(file)
        finally:
            os.close(file)


def _work(reached: Reached) -> tuple[int, int, int, int]:
    """What changes when messages are taken in, handled, or copied from a master."""
    copied_ms = 0 if reached.in_wheel else reached.read_ms
    return reached.queue_offset, reached.log_end, reached.handled, copied_ms


def _text(reached: Reached) -> str:
    """As a journal has it."""
    numbers = {"read_ms": reached.read_ms, "queue_offset": reached.queue_offset, "slot_done": reached.slot_done}
    return msgspec.json.encode(numbers).decode()
