"""The records of the revive topic as they lie in the store: appended and read, and not understood."""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dejamq_proto import names
from dejamq_proto.records.record import BadRecord, Record, decode

from dejamq_broker.pop import records
from dejamq_broker.pop.records import Writing
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
ORIGIN = RecordOrigin("pop")
READ_MESSAGES, READ_BYTES = 1024, 1 << 20


class ReviveLog:
    """Owned by the event loop. ``topic``: the revive topic of the cluster."""

    def __init__(self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, cluster: str) -> None:
        self._store, self._writer, self._topics = store, writer, topics
        self.topic = names.revive_topic(cluster)

    @property
    def writing(self) -> Writing:
        """What the records say of this broker."""
        return Writing(self.topic, self._writer.site.broker_name, self._writer.site.store_host)

    def put(self, record: Record) -> tuple[int, int]:
        """Its place: the revive queue, and the offset there. Raises what the store raises."""
        (place,) = self.put_each([record])
        return place

    def put_each(self, made: Sequence[Record]) -> Iterator[tuple[int, int]]:
        """Store records, in one piece where that can be: the place of each. Raises what the store raises."""
        if not made:
            return
        self._topics.ensure(self.topic, records.REVIVE_QUEUES)
        together = self._writer.put_all(made, ORIGIN.kind)
        if together is not None:
            yield from ((records.REVIVE_QUEUE, offset) for offset in together)
            return
        for record in made:
            yield record.queue_id, int(self._writer.put(record, ORIGIN).queue_offsets[0])

    def end(self, queue_id: int) -> int:
        """Of a revive queue."""
        return self._store.max_offset(self.topic, queue_id)

    def read(
        self, topic: str, queue_id: int, at: int, most: int = READ_MESSAGES, *, holding: bytes = b""
    ) -> Iterator[Record]:
        """What is in a queue from an offset on; all of it, unless ``most`` is 1.

        Pieces of the queue without the bytes ``holding`` are passed over unread.
        """
        end = self._store.max_offset(topic, queue_id) if most > 1 else at + 1
        while at < end:
            found = self._store.read(topic, queue_id, at, max_messages=most, max_bytes=READ_BYTES)
            data, begin = found.records, 0
            for size in found.sizes if holding in data else ():
                try:
                    yield decode(data, begin)
                except BadRecord as error:
                    log.warning("revive_record_damaged topic=%s queue=%d near=%d: %s", topic, queue_id, at, error)
                begin += size
            at = max(at + 1, found.next_offset)
