"""Recalls of messages that wait for their time. Source: RocketMQ ``RecallMessageProcessor``, ``RecallMessageHandle``.

A recall is a mark that waits in the same slot as the message, and deletes it when the slot is handled. Whoever was told
that it is stored is sure that the message is not delivered, if it waited here. An id that is not there is no error.
"""

from collections.abc import Callable

from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.recall_handle import RecallHandle
from dejamq_proto.records.record import BadRecord, Record, encode_properties

from dejamq_broker.base.identity import IntHost
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.timer.rules import TimerRules, delete_key
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

TAG = "_RECALL_TAG_"


class Recalls:
    """Owned by the event loop; it never waits."""

    def __init__(
        self, writer: RecordWriter, topics: TopicTable, timing: TimerRules, clock_ms: Callable[[], int], *,
        enabled: bool, writable: Callable[[], bool],
    ) -> None:  # fmt: skip
        """``writable``: whether the broker may be written now."""
        self._writer, self._topics, self._rules, self._clock_ms = writer, topics, timing, clock_ms
        self._enabled, self._writable = enabled, writable

    def handle_of(self, topic: str, out_ms: int, message_id: str) -> str:
        """The handle that a sender gets of a message in the slot that begins at ``out_ms``."""
        return RecallHandle.in_slot(topic, self._writer.site.broker_name, out_ms, message_id).encode()

    def recall(self, topic: str, handle: str, group: str, asker: Asker, born_host: IntHost) -> str:
        """Store the mark; answers the message's id. Raises what ``_check`` and the store raise; then nothing is stored.

        SYSTEM_ERROR of ``confirm``: it is stored, and the next master may not have it.

        ``born_host``: who asks.
        """
        known = RecallHandle.decode(handle)
        self._check(topic, known)
        properties = {
            names.PROPERTY_TAGS: TAG, names.PROPERTY_UNIQUE_KEY: known.message_id,
            names.PROPERTY_TIMER_DELETE_KEY: delete_key(known.topic, known.message_id),
            names.PROPERTY_TIMER_DELIVER: str(known.timestamp_ms), names.PROPERTY_PRODUCER_GROUP: group,
        }  # fmt: skip
        mark = Record(
            known.topic, 0, b"0", encode_properties(properties), born_timestamp_ms=self._clock_ms(),
            born_host=(".".join(map(str, born_host[0].to_bytes(4, "big"))), born_host[1]),
            store_host=self._writer.site.store_host,
        )  # fmt: skip
        try:
            waiting = self._rules.waiting(mark)
        except BadRecord as error:
            raise _refused(f"recall failed, {error}") from None
        self._topics.ensure(names.TIMER_TOPIC, 1)
        self._writer.put(waiting, RecordOrigin("recall", asker=asker, group=group))
        self._writer.confirm()
        return known.message_id

    def _check(self, topic: str, handle: RecallHandle) -> None:
        """Raises NO_PERMISSION, SLAVE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE, TOPIC_NOT_EXIST and ILLEGAL_OPERATION."""
        if not self._enabled:
            raise DejamqError("recall failed, operation is forbidden", code=Code.NO_PERMISSION, definite=True)
        if not self._writer.site.master:
            text = "recall failed, broker service not available"
            raise DejamqError(text, code=Code.SLAVE_NOT_AVAILABLE, definite=True)
        if not self._writable():
            text = "recall failed, broker service not available"
            raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE, definite=True)
        self._topics.require(topic)
        if topic != handle.topic:
            raise _refused("recall failed, topic not match")
        if handle.broker_name != self._writer.site.broker_name:
            raise _refused("recall failed, broker service not available")
        if handle.timestamp_ms <= self._clock_ms():
            raise _refused("recall failed, timestamp invalid")


def _refused(text: str) -> DejamqError:
    return DejamqError(text, code=Code.ILLEGAL_OPERATION, definite=True)
