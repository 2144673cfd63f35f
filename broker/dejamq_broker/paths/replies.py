"""Replies to requests: handed to the client that asked, if it is connected here, and kept in the reply topic.

Source: RocketMQ ``ReplyMessageProcessor``.
"""

import logging
from collections.abc import Callable

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record, encode, encode_properties

from dejamq_broker.store import Appended
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

log = logging.getLogger(__name__)
Push = Callable[[str, bytes, str], bool]
"""Queues a record of this producer group for the client of this id; False: it has no channel to this broker."""


class Replies:
    """Owned by the event loop; it never waits: a pushed reply is in the client's stream, not yet read by it.

    RocketMQ waits for the client's word. Here a reply that is lost with its stream is one that the client's time-out
    finds.
    """

    def __init__(self, writer: RecordWriter, *, store: bool, clock_ms: Callable[[], int], push: Push) -> None:
        """``store``: keep replies in the log too (``store_reply_message_enable``)."""
        self._writer, self._store, self._clock_ms, self._push_to = writer, store, clock_ms, push

    def accept(self, record: Record, origin: RecordOrigin) -> Appended | None:
        """Push, then store whatever became of that, as RocketMQ does. None: not stored.

        Raises DejamqError with SYSTEM_ERROR when the client is not connected here: the replier then tries the next
        broker. That error is not definite, because the copy for the reply topic is stored.
        """
        trouble = self._push(record, origin.group)
        appended = self._kept(record, origin) if self._store else None
        if trouble:
            raise DejamqError(trouble, code=Code.SYSTEM_ERROR, definite=appended is None)
        return appended

    def _kept(self, record: Record, origin: RecordOrigin) -> Appended | None:
        """A full disk does not unsay a reply that was handed on."""
        try:
            return self._writer.put(record, origin)
        except DejamqError as error:
            log.warning("reply_not_stored topic=%s reason=%s", record.topic, error)
            return None

    def _push(self, record: Record, group: str) -> str:
        """Why the reply could not be handed on; nothing when it was."""
        properties = record.properties
        client_id = properties.get(names.PROPERTY_REPLY_TO_CLIENT)
        if not client_id:
            return "the reply has no REPLY_TO_CLIENT; make it with reply_to()"
        now_ms = self._clock_ms()
        properties[names.PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        pushed = msgspec.structs.replace(
            record, raw_properties=encode_properties(properties), store_timestamp_ms=now_ms
        )
        if not self._push_to(client_id, encode(pushed), group):
            return (
                f"client {client_id} has no channel to this broker, or reads nothing from it, so the reply cannot be "
                "handed to it here"
            )
        return ""
