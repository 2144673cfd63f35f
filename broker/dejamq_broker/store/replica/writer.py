"""The writer of a slave's log: records that became whole go in, and on to the queues."""

from dejamq_broker.store.files.errors import StoreFull
from dejamq_broker.store.log.append import Appender
from dejamq_broker.store.log.batch import NOT_QUEUED, Batch, Single
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_broker.store.log.entries import UNQUEUED_TYPES, batch_of, queue_tags_code
from dejamq_broker.store.log.scan import FoundRecords
from dejamq_broker.store.queues.consume_queues import ConsumeQueues
from dejamq_broker.store.replica.incoming import Incoming, Whole


class ReplicaWriter:
    """Used by the thread that would append. Bytes are the master's as they are: nothing is filled in."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueues, appender: Appender, delay_levels_ms: tuple[int, ...]
    ) -> None:
        self._log, self._queues, self._appender, self._delay_levels_ms = log, queues, appender, delay_levels_ms
        self.incoming = Incoming(log.files.file_size)

    def take(self, log_offset: int, data: bytes | memoryview) -> None:
        """Append what became whole with these bytes.

        Raises BadCopy for bytes that are no records, StoreFull, StoreClosed, and StoreError after the disk failed. The
        records before the error are in the log then, and the stream has to begin again at its end.
        """
        with self._appender.writing():
            for part in self.incoming.take(log_offset, data):
                self._put(part)

    def _batch(self, part: Whole) -> Batch | Single:
        """The queue entries of this part."""
        records = part.records
        if records is None:
            return part.no_entries(self._log.last_store_timestamp_ms)
        if isinstance(records, FoundRecords):
            return batch_of(records, self._queues.number_of, self._delay_levels_ms)
        queued = records.transaction_type not in UNQUEUED_TYPES
        return Single(
            part.log_offset, len(part.data), queue_tags_code(records, self._delay_levels_ms), records.queue_offset,
            self._queues.number_of((records.topic, records.queue_id)) if queued else NOT_QUEUED, part.end,
            records.store_timestamp_ms,
        )  # fmt: skip

    def _put(self, part: Whole) -> None:
        log = self._log
        batch = self._batch(part)
        try:
            log.make_room(part.end)
        except OSError as error:
            raise StoreFull(f"no room for a log file in {log.files.folder}: {error.strerror}") from error
        log.put_copy(part.data, batch.store_timestamp_ms)
        self._appender.hand_over(batch)
