"""Messages that nobody acknowledged in time: copies in the group's retry topic, or dead letters after the last try.

Source: RocketMQ ``PopReviveService.reviveRetry``; the limit of tries is that of its proxy, which looks after a pop.
"""

import logging
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import DejamqError, MessageTooLarge
from dejamq_proto.records.record import Record, decode, encode_properties

from dejamq_broker.deferred.retry import MOST_TRIES, next_try
from dejamq_broker.pop.copies import reference
from dejamq_broker.pop.flight import CheckPoint
from dejamq_broker.pop.lines import PopLines
from dejamq_broker.pop.memory import DroppedDelivery
from dejamq_broker.pop.state import PopState
from dejamq_broker.store import Appended
from dejamq_broker.tables.offsets import Position
from dejamq_broker.tables.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
AGAIN_MS = 1000
"""After a copy that could not be stored, as when the disk is full."""
MOST_AT_ONCE = 256
"""Copies of one turn: the event loop has others to serve."""


class Reviver:
    """Owned by the event loop; it never waits."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, groups: SubscriptionGroupTable,
        state: PopState, lines: PopLines, *, v2: bool,
    ) -> None:  # fmt: skip
        """``v2``: which form the names of new retry topics have."""
        self._store, self._writer, self._topics, self._groups = store, writer, topics, groups
        self._state, self._lines, self._v2 = state, lines, v2

    def turn(self, now_ms: int) -> bool:
        """Revive what is due; whether there is more."""
        left = MOST_AT_ONCE
        for point in self._state.flights.due(now_ms):
            offsets = sorted(point.left)[:left]
            try:
                for offset in offsets:
                    self._revive(point, offset)
                    self._done(point, offset)
            except DejamqError as error:
                log.warning("not_revived %s reason=%s", point.at, error)
                self._state.flights.look_again(point, now_ms + AGAIN_MS)
                return False
            left -= len(offsets)
            if point.left:
                self._state.flights.look_again(point, now_ms)
            if left <= 0:
                return True
        return False

    def _revive(self, point: CheckPoint, offset: int) -> None:
        """A message that is gone, or whose topic or group is, is done: nobody could be given it."""
        group, original = self._groups.get(point.at.group), self._original(point.at, offset)
        if original is None or group is None or self._topics.get(point.at.topic) is None:
            log.warning("revive_skipped %s offset=%d: the message, its topic or its group is gone", point.at, offset)
            self._lines.dropped([DroppedDelivery(point.at, point.pop_time, [offset])], "gone")
            return
        first = first_topic(point.at)
        dead = original.reconsume_times >= group.retry_max_times
        made = self._dead_letter(original, first, group) if dead else self._copy(original, point, first)
        self._store_copy(made, point.at, offset, point.pop_time, point.invisible_ms, dead=dead)

    def _store_copy(
        self, made: Record, at: Position, offset: int, pop_time: int, invisible_ms: int, *, dead: bool
    ) -> None:
        stored = self._put(made, reference(at, offset, pop_time), at.group)
        self._lines.revived(
            at, offset, pop_time=pop_time, invisible_ms=invisible_ms, target_topic=made.topic,
            target_queue_id=made.queue_id, target_offset=int(stored.queue_offsets[0]),
            attempt=made.reconsume_times + 1, dead=dead,
        )  # fmt: skip

    def bury(self, at: Position, offset: int, pop_time: int, invisible_ms: int) -> None:
        """A message used up its tries, by the count or its consumer's word. Raises what the store raises."""
        group, original = self._groups.get(at.group), self._original(at, offset)
        if group is not None and original is not None:
            made = self._dead_letter(original, first_topic(at), group)
            self._store_copy(made, at, offset, pop_time, invisible_ms, dead=True)

    def _done(self, point: CheckPoint, offset: int) -> None:
        """Its copy is stored, so it is done, whether or not that can be written down; a start finds the copy."""
        try:
            self._state.done(point, [offset], lost=True)
        except DejamqError as error:
            log.warning("revive_not_acknowledged %s offset=%d reason=%s", point.at, offset, error)
            self._state.flights.settle(point, [offset], lost=True)

    def _copy(self, original: Record, point: CheckPoint, first: str) -> Record:
        """A copy of a copy stays in its topic."""
        topic = point.at.topic
        if topic == first:
            topic = names.pop_retry_topic(point.at.group, first, v2=self._v2)
        self._topics.ensure(topic, 1)
        properties = {names.PROPERTY_FIRST_POP_TIME: str(point.pop_time)} | original.properties
        return msgspec.structs.replace(
            original, topic=topic, queue_id=0, reconsume_times=min(original.reconsume_times + 1, MOST_TRIES),
            born_host=self._writer.site.store_host, store_host=self._writer.site.store_host, queue_offset=0,
            raw_properties=encode_properties(properties), prepared_transaction_offset=0, magic=None,
        )  # fmt: skip

    def _dead_letter(self, original: Record, first: str, group: SubscriptionGroup) -> Record:
        """RETRY_TOPIC is the topic that it was sent to, so that a replay finds it (RocketMQ: the retry topic)."""
        topic = self._topics.ensure(names.dlq_topic(group.group_name), 1).topic_name
        reason = f"not acknowledged in {original.reconsume_times + 1} deliveries"
        letter = next_try(original, topic, 0, 0, reason)
        properties = letter.properties | {names.PROPERTY_RETRY_TOPIC: first}
        properties.pop(names.PROPERTY_DELAY, None)
        return msgspec.structs.replace(
            letter, raw_properties=encode_properties(properties), store_host=self._writer.site.store_host
        )

    def _put(self, made: Record, ref: str, group: str) -> Appended:
        """Properties that leave no space for the reference are stored without it: the message counts."""
        origin = RecordOrigin("revive", ref, group=group)
        properties = made.properties | {names.PROPERTY_POP_REF: ref}
        try:
            return self._writer.put(msgspec.structs.replace(made, raw_properties=encode_properties(properties)), origin)
        except MessageTooLarge:
            properties = {name: text for name, text in properties.items() if name not in OURS}
            return self._writer.put(msgspec.structs.replace(made, raw_properties=encode_properties(properties)), origin)

    def _original(self, at: Position, offset: int) -> Record | None:
        found = self._store.read(at.topic, at.queue_id, offset, max_messages=1)
        if not found.sizes:
            return None
        record = decode(found.records)
        return record if record.queue_offset == offset else None


OURS = (names.PROPERTY_POP_REF, names.PROPERTY_FIRST_POP_TIME, names.PROPERTY_DEAD_LETTER_REASON)


def first_topic(at: Position) -> str:
    """The topic that a group asked for, by the one in whose queue the message lies."""
    for form in (f"{names.RETRY_PREFIX}{at.group}_", f"{names.RETRY_PREFIX}{at.group}+"):
        if at.topic.startswith(form):
            return at.topic.removeprefix(form)
    return at.topic
