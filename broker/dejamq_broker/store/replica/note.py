"""A slave's note on its master, so that a later start as master can say what is missing."""

from pathlib import Path

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_broker.store.files.paths import StorePaths

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no calendar has a later time."""


class SlaveNote(msgspec.Struct, frozen=True, kw_only=True):
    """``slaveNote.json``, written with every copy of the tables, when the master is lost, and at the end.

    ``master_end``: where the master's log ended at ``heard_ms``, its last sign of life; ``log_end``: where this one
    ended when the note was written. ``copied_ms``: when topics, groups, offsets and delay progress were copied, 0:
    never. Both by the slave's wall clock.
    """

    master_address: str
    master_end: int
    heard_ms: int
    log_end: int
    copied_ms: int = 0

    def missing_bytes(self, log_end: int) -> int:
        """Of the master's log as it is known, how much a log that ends here lacks."""
        return max(0, self.master_end - log_end)

    @property
    def stale_ms(self) -> int:
        """How much older than the last sign of life the tables are; -1: they were never copied."""
        return max(0, self.heard_ms - self.copied_ms) if self.copied_ms else -1


def read_note(paths: StorePaths) -> SlaveNote | None:
    """None without a note, or for one that cannot be read: it is only for people."""
    return _read(paths.slave_note)


def _read(path: Path) -> SlaveNote | None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=SlaveNote)
    except (OSError, *BAD_JSON):
        return None
    times = found.heard_ms, found.copied_ms
    return found if min(times) >= 0 and max(times) <= LATEST_MS else None
