"""Whose message lies at a place: what access control asks before somebody names a message by it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dejamq_proto import names
from dejamq_proto.codes import DejamqError
from dejamq_proto.records.record import BadRecord, decode

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore


def message_topics(store: "MessageStore") -> Callable[[int | str, bool], str]:
    """The topic of the message at a log offset, or with an offset message id; '' where none is.

    Half, delayed and timed messages wait in topics of the broker's own: theirs is the one that they go to. With True
    the topic that a dead letter was first sent to.
    """

    def topic_of(place: int | str, first: bool) -> str:
        try:
            raw = store.record_at(place) if isinstance(place, int) else store.record_by_id(place)
            record = None if raw is None else decode(raw, check_crc=False)
        except (BadRecord, DejamqError, OverflowError):
            return ""
        if record is None:
            return ""
        properties = record.properties
        if first:
            return properties.get(names.PROPERTY_RETRY_TOPIC, "")
        if record.topic in (names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.TIMER_TOPIC):
            return properties.get(names.PROPERTY_REAL_TOPIC, "") or record.topic
        return record.topic

    return topic_of
