"""``config/dedupWindow.json``: from where on a start reads the log for ids that count. It only saves time."""

from pathlib import Path

import msgspec
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.texts import MOST_64

from dejamq_broker.base.disk_work import beside_loop
from dejamq_broker.store.files.checkpoint import atomic_write

STEP_BYTES = 16 << 20
"""A start may read so much of the log more than it has to."""


class WindowMark:
    """Nothing before this log offset counts. Owned by the event loop."""

    def __init__(self, path: Path) -> None:
        self._path, self._saved = path, 0

    def take(self) -> int:
        """Where to begin; 0 where no file says it.

        The file goes: a log that was cut grows over its old end, and the mark would be wrong then. Raises OSError.
        """
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, int]).get("logOffset", 0)
            found = found if 0 <= found <= MOST_64 else 0
        except (FileNotFoundError, *BAD_JSON):
            found = 0
        self._path.unlink(missing_ok=True)
        return found

    async def save(self, log_offset: int, *, at_least: int = 1) -> None:
        """Write it where it moved so far. Raises OSError."""
        if log_offset >= self._saved + at_least:
            await beside_loop(self._write, log_offset)
            self._saved = log_offset

    def _write(self, log_offset: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._path, msgspec.json.encode({"logOffset": log_offset}))
