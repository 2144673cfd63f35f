"""Messages that consumers give back: stored again for a later try, or as dead letters (CONSUMER_SEND_MSG_BACK).

``%RETRY%group`` gets the next try after a delay that grows with the tries; after the last one ``%DLQ%group`` gets it.
"""

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.records.record import BadRecord, Record, decode, encode_properties

from dejamq_broker.deferred.delay import scheduled
from dejamq_broker.deferred.retry_policy import retry_level
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
MOST_TRIES = (1 << 31) - 1  # that a record can count
ROOM_FOR_A_REASON = 30_000  # bytes of properties; a record holds 32,767
LONGEST_LIMIT = 10  # digits: more are no number of 32 bits, and endless ones no number to Python either


class GivenBack(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's request to send back. ``delay_level`` 0: the broker chooses; below 0: dead letters at once.

    ``log_offset`` is where the original begins in this broker's log. ``max_reconsume_times`` 0 leaves the limit to the
    group. ``delivery_ref`` names the consumer's delivery, so that the audit can tell which one asked for the retry.
    ``reason`` is why it failed; only a dead letter keeps it.
    """

    group: str
    log_offset: int
    delay_level: int = 0
    max_reconsume_times: int = 0
    delivery_ref: str = ""
    reason: str = ""
    asker: Asker = Asker()


class Retries:
    """Stores messages given back; owned by the event loop, it never waits."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, groups: SubscriptionGroupTable,
        levels_ms: tuple[int, ...], *, writable: bool, ordered: Callable[[str], bool],
    ) -> None:  # fmt: skip
        """``levels_ms``: the delays as the table of levels says them. ``writable``: the broker may be written.
        ``ordered``: whether a member of the group holds a lock now.
        """
        self._store, self._writer, self._topics, self._groups = store, writer, topics, groups
        self._levels_ms, self.writable, self._ordered = levels_ms, writable, ordered

    def send_back(self, given: GivenBack) -> None:
        """Store the next try. Raises SUBSCRIPTION_GROUP_NOT_EXIST, NO_PERMISSION; SYSTEM_ERROR: original gone.

        RocketMQ: AbstractSendMessageProcessor.consumerSendMsgBack, with its checks in its order. Level 0 becomes 3 +
        the tries so far, that is 10 s for the first retry, or what the group's retry policy says. Success with
        nothing stored is possible: a group without retry queues wants its failures dropped.
        """
        group = self._groups.known(given.group)
        if not self.writable:
            raise PermissionDenied("this broker may not be written (broker_permission); another one may take it")
        if group.retry_queue_nums <= 0:  # RocketMQ: such a group wants no retries, the message is dropped
            log.warning("send_back_dropped group=%s log_offset=%d", given.group, given.log_offset)
            return
        topic = self._retry_topic(group)
        original = self._original(given.log_offset)
        origin = RecordOrigin("sendback", given.delivery_ref, given.asker, given.group)
        self._writer.put(scheduled(self._next_of(original, topic, group, given), len(self._levels_ms)), origin)

    def _next_of(self, original: Record, retry_topic: str, group: SubscriptionGroup, given: GivenBack) -> Record:
        """The next try, or the dead letter when no try is left or wanted."""
        times = given.max_reconsume_times if given.max_reconsume_times > 0 else group.retry_max_times
        dead = given.delay_level < 0 or original.reconsume_times >= times
        topic = self._dead_letters(group) if dead else retry_topic
        level = given.delay_level or retry_level(group.group_retry_policy, original.reconsume_times, self._levels_ms)
        queue_id = random.randrange(self._topics.require(topic).write_queue_nums)
        again = next_try(original, topic, queue_id, 0 if dead else level, given.reason if dead else "")
        return msgspec.structs.replace(again, store_host=self._writer.site.store_host)

    def redirect(self, record: Record) -> Record:
        """An ordinary send to a retry topic: dead letters when its tries are used up (strictly more than the limit).

        RocketMQ: AbstractSendMessageProcessor.handleRetryAndDLQ. Sends to retry topics come from consumers whose
        send-back failed; they count their tries themselves, in the record. While a queue lock of the group is alive
        they are dead letters at once. Members of an ordered group try again where they are, and send only messages that
        they give up.
        """
        group_name = record.topic.removeprefix(names.RETRY_PREFIX)
        given_up = group_name != record.topic and self._ordered(group_name)
        if group_name == record.topic or not (record.reconsume_times or given_up):
            return record
        group = self._groups.known(group_name)
        limit = record.properties.get(names.PROPERTY_MAX_RECONSUME_TIMES, "")
        times = int(limit) if limit.isdecimal() and len(limit) <= LONGEST_LIMIT else group.retry_max_times
        if record.reconsume_times <= times and not given_up:
            return record
        properties = record.properties | {names.PROPERTY_DELAY: "-1"}
        return msgspec.structs.replace(
            record,
            topic=self._dead_letters(group),
            queue_id=0,
            magic=None,
            raw_properties=encode_properties(properties),
        )

    def _original(self, log_offset: int) -> Record:
        """The record as it was stored.

        A log offset inside of another record, or before the oldest file, names no record.
        """
        raw = self._store.record_at(log_offset)
        try:
            if raw is not None:
                return decode(raw)
        except BadRecord:
            pass
        text = f"no message begins at log offset {log_offset} any more, so it cannot be given back"
        raise DejamqError(text, code=Code.SYSTEM_ERROR, definite=True)

    def _retry_topic(self, group: SubscriptionGroup) -> str:
        topic = names.retry_topic(group.group_name)
        config = self._topics.ensure(topic, group.retry_queue_nums)
        if not config.perm & names.PERM_WRITE:
            raise PermissionDenied(f"topic {topic!r} may not be written (permission {config.perm})")
        return topic

    def _dead_letters(self, group: SubscriptionGroup) -> str:
        """The group's dead-letter topic, made with one queue.

        Nobody consumes it unless a program subscribes to it by name.
        """
        return self._topics.ensure(names.dlq_topic(group.group_name), 1).topic_name


def next_try(original: Record, topic: str, queue_id: int, delay_level: int, reason: str = "") -> Record:
    """The record of the next try: same body, tags and properties, one more reconsume time, and where it came from.

    The unique key, the time and the host of birth stay, so a retry is the same message to programs. RETRY_TOPIC and
    ORIGIN_MESSAGE_ID are set by the first try and kept by all later ones. A ``reason`` is kept where there is space.
    """
    properties = original.properties
    properties.pop(names.PROPERTY_DEAD_LETTER_REASON, None)
    if reason and len(original.raw_properties) < ROOM_FOR_A_REASON:
        properties[names.PROPERTY_DEAD_LETTER_REASON] = names.reason_text(reason)
    if not names.is_internal(original.topic) and not names.is_system(original.topic):
        # A first try. Its sender may have set these two by mistake; then no handler would be found for the next try.
        properties.pop(names.PROPERTY_RETRY_TOPIC, None)
        properties.pop(names.PROPERTY_ORIGIN_MESSAGE_ID, None)
    properties.setdefault(names.PROPERTY_RETRY_TOPIC, original.topic)
    properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, original.offset_message_id)
    properties[names.PROPERTY_WAIT] = "false"
    properties[names.PROPERTY_DELAY] = str(delay_level)
    return msgspec.structs.replace(
        original,
        topic=topic,
        queue_id=queue_id,
        raw_properties=encode_properties(properties),
        reconsume_times=min(original.reconsume_times + 1, MOST_TRIES),
        prepared_transaction_offset=0,
        queue_offset=0,
        magic=None,
    )
