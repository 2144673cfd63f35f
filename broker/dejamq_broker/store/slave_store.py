"""The store of a slave: the same files, filled by its master's bytes, and cut back to the part that the master has
too.
"""

from collections.abc import Sequence
from pathlib import Path

from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.cut import CutTail
from dejamq_broker.store.log.scan import End
from dejamq_broker.store.message_store import MessageStore
from dejamq_broker.store.replica.incoming import DamagedRange
from dejamq_broker.store.replica.writer import ReplicaWriter


class SlaveStore(MessageStore):
    """As ``MessageStore``, but appends are refused: SERVICE_NOT_AVAILABLE, as in RocketMQ."""

    copies_only = True

    def _begin(self, keep_to: End | None) -> None:
        super()._begin(keep_to)
        self._replica = ReplicaWriter(self._log, self._queues, self._appender, self._config.delay_levels_ms)

    @property
    def note_path(self) -> Path:
        """Where a slave notes how near to its master it is (``SlaveNote``)."""
        return self._paths.slave_note

    def begin_copy(self, damaged: Sequence[DamagedRange] = ()) -> int:
        """A stream of the master's log begins: from which log offset on. ``damaged`` ranges are taken as they are."""
        self._replica.incoming.begin(self._log.max_offset, damaged)
        return self._log.max_offset

    def take_copy(self, log_offset: int, data: bytes | memoryview) -> None:
        """Append bytes of the master's log as they are; a record whose end is missing waits for it in memory.

        Raises BadCopy for bytes that are no records or not the next ones, and as ``append_run``: the stream has to
        begin again then.
        """
        try:
            self._replica.take(log_offset, data)
        finally:
            self._reput.dispatch()
            self._flusher.appended()

    def cut_back(self, log_offset: int, reason: str) -> tuple[CutTail, ...]:
        """Take off everything from this log offset on, where a record must begin, and keep copies of it beside.

        Long: not for an event loop. The parts of the store are made anew, and readers meanwhile get StoreClosed. After
        a failure all callers get it, until ``reopen`` does it. Raises as ``open``.
        """
        self._end()
        self.reopen(End(log_offset, reason))
        return self.recovery.cuts

    def begin_at(self, log_offset: int) -> None:
        """Let an empty log begin at this log offset, the start of a file. In all else as ``cut_back``."""
        log = self._log
        if log.max_offset != log.min_offset:
            raise StoreError(f"the log in {self._paths.root} is not empty, it cannot begin at {log_offset}")
        self._end()
        with self._opening():
            for file in log.files.files:
                file.delete()
            MappedFile.create(log.files.path(log_offset), log_offset, log.files.file_size)
        self.reopen()
