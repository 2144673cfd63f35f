"""Small durable files: RocketMQ's ``checkpoint``, and ``dispatched.json``, our mark of how far the queues go."""

import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.store.files.directories import sync_directory

CHECKPOINT_SIZE = 4096
ROOM_MS = 3000
"""How much older than the checkpoint a record must be to be safe, as in RocketMQ."""
_FIELDS = struct.Struct(">5q")


class Checkpoint(msgspec.Struct):
    """Times (ms) up to which data is on disk, for a RocketMQ that opens this store. Source: ``StoreCheckpoint``."""

    log_timestamp_ms: int = 0
    queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_log_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Zeros when the file is missing or too short: it only ever saves time."""
        raw = path.read_bytes() if path.exists() else b""
        return cls(*_FIELDS.unpack_from(raw)) if len(raw) >= _FIELDS.size else cls()

    def safe_ms(self, now_ms: int, *, index_too: bool) -> int:
        """Records of this time and before have their entries on disk; 0: nothing is known.

        A time that is not set, or that lies in the future, was not written by a store. Source: ``getMinTimestamp``.
        """
        times = [self.log_timestamp_ms, self.queue_timestamp_ms, *([self.index_timestamp_ms] if index_too else [])]
        if not all(0 < time_ms <= now_ms for time_ms in times):
            return 0
        return max(0, min(times) - ROOM_MS)

    def save(self, path: Path) -> None:
        atomic_write(path, _FIELDS.pack(*msgspec.structs.astuple(self)).ljust(CHECKPOINT_SIZE, b"\0"))


class DispatchProgress(msgspec.Struct):
    """Every record before ``log_offset`` has its entry: the queues reach these offsets in their files.

    All of that is on disk when the mark is, and so is the log up to ``flushed``. A hole before ``flushed`` is damage, a
    hole after it a power loss. When a queue is shorter than it says, the queues are rebuilt from the whole log.
    """

    log_offset: int = 0
    queues: dict[str, dict[int, int]] = {}
    flushed: int = 0
    firsts: dict[str, dict[int, int]] = {}
    """The queue offset at which each queue began: files before it may be gone, one after it may not."""

    @property
    def durable_log(self) -> int:
        """The log was on disk up to here when the mark was made."""
        return max(self.flushed, self.log_offset)

    @classmethod
    def load(cls, path: Path) -> "DispatchProgress | None":
        """None when there is no mark, or nothing that can be one."""
        try:
            found = msgspec.json.decode(path.read_bytes(), type=cls)
        except (FileNotFoundError, *BAD_JSON):
            return None
        counts = [count for _, count in found.by_queue()]
        folders = all(topic not in ("", ".", "..") and "/" not in topic for topic in found.queues)
        return found if folders and min(found.log_offset, found.flushed, *counts) >= 0 else None

    def without(self, topics: Iterable[str]) -> "DispatchProgress":
        """The mark as if these topics had never been."""
        gone = set(topics)
        return DispatchProgress(
            self.log_offset, {name: counts for name, counts in self.queues.items() if name not in gone}, self.flushed,
            {name: firsts for name, firsts in self.firsts.items() if name not in gone},
        )  # fmt: skip

    def by_queue(self) -> Iterator[tuple[tuple[str, int], int]]:
        """How many entries each queue (topic, queue id) has."""
        for topic, counts in self.queues.items():
            for queue_id, count in counts.items():
                yield (topic, queue_id), count

    def save(self, path: Path) -> None:
        atomic_write(path, msgspec.json.encode(self))


def atomic_write(path: Path, data: bytes) -> None:
    """The file holds the old or the new bytes, whatever happens in between. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
