"""Half messages on their way in: part of the send path."""

from collections.abc import Callable

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import PermissionDenied
from dejamq_proto.records.record import BadRecord, Record

from dejamq_broker.deferred.transactions.records import half_of, half_trouble, is_transactional
from dejamq_broker.store import Appended
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter


class Halves:
    """Owned by the event loop. ``on_stored`` is called with each half message and its places."""

    def __init__(
        self, writer: RecordWriter, topics: TopicTable, on_stored: Callable[[Record], None], *, reject: bool
    ) -> None:
        self._writer, self._topics, self._on_stored, self._reject = writer, topics, on_stored, reject

    def made_of(self, record: Record) -> Record | None:
        """The half message that a sent record asks for; None for one without a transaction.

        Raises PermissionDenied where transactions are refused, BadRecord for one that cannot be ended.
        """
        properties = record.properties
        if not is_transactional(record, properties):
            return None
        if self._reject:
            raise PermissionDenied("this broker takes no messages of transactions (reject_transaction_message)")
        if trouble := half_trouble(properties):
            raise BadRecord(trouble)
        return half_of(record, properties)

    def put(self, half: Record, origin: RecordOrigin) -> Appended:
        """Store it. Raises what the store raises; then nothing was stored."""
        self._topics.ensure(names.HALF_TOPIC, 1)
        appended = self._writer.put(half, msgspec.structs.replace(origin, kind="tx_half"))
        places = {"queue_offset": int(appended.queue_offsets[0]), "log_offset": int(appended.log_offsets[0])}
        self._on_stored(msgspec.structs.replace(half, **places))
        return appended
