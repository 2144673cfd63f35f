"""Topics that were deleted while the log still has records of theirs: those are of an earlier life and get no entry.

RocketMQ keeps no such list: queues that it builds again from the log show the messages of deleted topics once more.
"""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.store.files.checkpoint import atomic_write


class DeletedTopics:
    """For each topic the log offset of its last deletion. Changed by the appending thread, read by any."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # without a list that can be read every record is of a topic's only life
        self._ends: dict[str, int] = read_ends(path) or {}
        self._noted: dict[str, int] = {}
        self._writing = threading.Lock()

    def end_of_life(self, topic: str) -> int:
        """Records of the topic that begin before this log offset are of an earlier life; 0: it never was deleted."""
        return self._ends.get(topic, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ends)

    def note(self, topic: str, log_offset: int, log_min: int) -> None:
        """On disk before it returns; ``add`` follows. Any thread. Deletions of which the log has nothing any more are
        left out. Raises OSError.
        """
        with self._writing:
            kept = {name: end for name, end in self._ends.items() if end > log_min}
            atomic_write(self._path, msgspec.json.encode(kept | self._noted | {topic: log_offset}))
            self._noted[topic] = log_offset

    def add(self, topic: str, log_offset: int, log_min: int) -> None:
        """It was noted, and no record of the topic came since."""
        kept = {name: end for name, end in self._ends.items() if end > log_min}
        self._ends = kept | {topic: log_offset}
        self._noted.pop(topic, None)

    def clamp(self, log_end: int) -> None:
        """A deletion behind the end of the log counts as a deletion at the end: records that come there now are of a
        new life.

        A power loss, or a master that has not what its slave has, takes the end of a log. Raises OSError.
        """
        ends = {name: min(end, log_end) for name, end in self._ends.items()}
        if ends != self._ends:
            atomic_write(self._path, msgspec.json.encode(ends))
            self._ends = ends


def read_ends(path: Path) -> dict[str, int] | None:
    """The content of the file; None without a file, or for one that cannot be it. Raises OSError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (FileNotFoundError, *BAD_JSON):
        return None
