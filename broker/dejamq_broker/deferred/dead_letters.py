"""Dead letters sent again, each once (RocketMQ leaves this to its console, which keeps no account of it).

A replay is a new record that names the dead letter in REPLAY_OF. That record is also the memory of it. A second request
is answered from the log, after any restart and by whichever tool.
"""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from dejamq_proto import names
from dejamq_proto.codes import Code, DejamqError, PermissionDenied
from dejamq_proto.records.record import BadRecord, Record, decode, encode_properties

from dejamq_broker.store import KeyQuery
from dejamq_broker.store.index.query import NO_END, UNIQUE_MOST
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_broker.writing.record_writer import RecordOrigin, RecordWriter

if TYPE_CHECKING:
    from dejamq_broker.store import Appended, MessageStore

REMEMBERED = 10_000
"""Replays whose records the index may not have yet; with SYNC_FLUSH it has them only when they are on disk."""
OF_AN_EARLIER_LIFE = (
    names.PROPERTY_DELAY, names.PROPERTY_REAL_TOPIC, names.PROPERTY_REAL_QUEUE, names.PROPERTY_RECONSUME_TIME,
    names.PROPERTY_MAX_RECONSUME_TIMES, names.PROPERTY_ORIGIN_MESSAGE_ID, names.PROPERTY_DEAD_LETTER_REASON,
    names.PROPERTY_POP_REF, names.PROPERTY_FIRST_POP_TIME,
)  # fmt: skip


class ReplayWish(msgspec.Struct, frozen=True, kw_only=True):
    """``to_topic``: to all groups that read the first topic, else to this one alone. ``again``: even a second time."""

    group: str
    log_offset: int
    to_topic: bool = False
    again: bool = False
    dry_run: bool = False
    asker: Asker = Asker()


class Replayed(msgspec.Struct, frozen=True):
    """Where the new record is; nothing where none was stored. ``earlier_ms``: the newest replay before, 0 for none."""

    topic: str
    earlier_ms: int
    queue_id: int = 0
    stored: "Appended | None" = None


class DeadLetters:
    """Owned by the event loop. Only the search for an earlier replay leaves it, for the index may be behind."""

    def __init__(
        self, store: "MessageStore", writer: RecordWriter, topics: TopicTable, groups: SubscriptionGroupTable,
        *, writable: Callable[[], bool], sync_flush: bool,
    ) -> None:  # fmt: skip
        self._store, self._writer, self._topics, self._groups = store, writer, topics, groups
        self._writable, self._sync_flush = writable, sync_flush
        self._recent: dict[int, int] = {}

    async def replay(self, wish: ReplayWish) -> Replayed:
        """Store the dead letter again, unless that was done before. Raises QUERY_NOT_FOUND for a record that is not a
        dead letter of the group. Raises TOPIC_NOT_EXIST, NO_PERMISSION, INVALID_PARAMETER where it cannot go, and the
        store's errors.
        """
        letter = self._letter(wish.group, wish.log_offset)
        topic = self._topic_for(letter, wish)
        earlier_ms = await self._replayed_ms(letter, wish.group)
        earlier_ms = max(earlier_ms, self._recent.get(wish.log_offset, 0))  # as it is now, after waiting
        if not wish.dry_run and (wish.again or not earlier_ms):
            return await self._store_again(letter, topic, earlier_ms, wish)
        if not wish.dry_run:
            self._writer.confirm()
        return Replayed(topic, earlier_ms)

    async def _store_again(self, letter: Record, topic: str, earlier_ms: int, wish: ReplayWish) -> Replayed:
        """SYSTEM_ERROR of ``confirm``: it is stored, and the next master may not have it."""
        queue_id = random.randrange(self._topics.require(topic).write_queue_nums)
        again = msgspec.structs.replace(replay_of(letter, topic, queue_id), store_host=self._writer.site.store_host)
        stored = self._writer.put(again, RecordOrigin("admin", letter.offset_message_id, wish.asker, wish.group))
        self._remember(wish.log_offset, stored.store_timestamp_ms)
        if self._sync_flush:
            await self._writer.on_disk()
        self._writer.confirm()
        return Replayed(topic, earlier_ms, queue_id, stored)

    def _letter(self, group: str, log_offset: int) -> Record:
        raw = self._store.record_at(log_offset)
        try:
            letter = None if raw is None else decode(raw)
        except BadRecord:
            letter = None
        if letter is None or letter.topic != names.dlq_topic(group):
            text = f"no dead letter of group {group!r} begins at log offset {log_offset}"
            raise DejamqError(text, code=Code.QUERY_NOT_FOUND)
        return letter

    def _topic_for(self, letter: Record, wish: ReplayWish) -> str:
        """Where it goes, which exists afterwards and may be written."""
        if not self._writable():
            raise PermissionDenied("this broker may not be written (broker_permission)")
        topic = self._first_topic(letter) if wish.to_topic else self._retry_topic(letter, wish.group)
        perm = self._topics.require(topic).perm
        if not perm & names.PERM_WRITE:
            raise PermissionDenied(f"topic {topic!r} may not be written (permission {perm})")
        return topic

    def _first_topic(self, letter: Record) -> str:
        topic = letter.properties.get(names.PROPERTY_RETRY_TOPIC, "")
        if not topic:
            text = f"dead letter {letter.offset_message_id} does not say which topic it was first sent to"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        names.check_sendable(topic)
        return topic

    def _retry_topic(self, letter: Record, group_name: str) -> str:
        """A group that pops has no retry topic but one of each topic."""
        group = self._groups.known(group_name)
        if popped := _pop_retry_topic(letter, group_name):
            return self._topics.ensure(popped, 1).topic_name
        if group.retry_queue_nums <= 0:
            text = f"group {group_name!r} has no retry queues (retry_queue_nums 0); send to the first topic instead"
            raise DejamqError(text, code=Code.INVALID_PARAMETER)
        return self._topics.ensure(names.retry_topic(group_name), group.retry_queue_nums).topic_name

    async def _replayed_ms(self, letter: Record, group: str) -> int:
        """Store time of the newest replay that the log still has, to either place; 0 without a replay."""
        first = letter.properties.get(names.PROPERTY_RETRY_TOPIC, "")
        topics = {names.retry_topic(group), _pop_retry_topic(letter, group), first} - {""}
        found = [await asyncio.to_thread(self._newest_replay_ms, letter, topic) for topic in sorted(topics)]
        return max(found, default=0)

    def _newest_replay_ms(self, letter: Record, topic: str) -> int:
        """One answer of the index holds few records; retries of a replay may fill it, so older ones are asked for."""
        end_ms = NO_END
        while True:
            wanted = KeyQuery(
                topic, _unique_key(letter), begin_ms=letter.store_timestamp_ms, end_ms=end_ms, unique=True
            )
            records = [decode(raw, check_crc=False) for raw in self._store.query(wanted).records]
            times_ms = [one.store_timestamp_ms for one in records if _is_replay(one, letter)]
            if times_ms or len(records) < UNIQUE_MOST:
                return max(times_ms, default=0)
            end_ms = min(one.store_timestamp_ms for one in records) - 1

    def _remember(self, log_offset: int, stored_ms: int) -> None:
        self._recent.pop(log_offset, None)
        self._recent[log_offset] = stored_ms
        if len(self._recent) > REMEMBERED:
            del self._recent[next(iter(self._recent))]


def replay_of(letter: Record, topic: str, queue_id: int) -> Record:
    """The dead letter as a new record: same body, key and birth, its tries forgotten, and where it comes from."""
    properties = {name: text for name, text in letter.properties.items() if name not in OF_AN_EARLIER_LIFE}
    if not topic.startswith(names.RETRY_PREFIX):
        properties.pop(names.PROPERTY_RETRY_TOPIC, None)
    properties[names.PROPERTY_UNIQUE_KEY] = _unique_key(letter)
    properties[names.PROPERTY_REPLAY_OF] = letter.offset_message_id
    properties[names.PROPERTY_REPLAYED_FROM] = letter.topic
    return msgspec.structs.replace(
        letter, topic=topic, queue_id=queue_id, raw_properties=encode_properties(properties), reconsume_times=0,
        prepared_transaction_offset=0, queue_offset=0, magic=None,
    )  # fmt: skip


def _pop_retry_topic(letter: Record, group: str) -> str:
    """Where the group pops its repeats from; empty for a letter that was not popped. Pops look at both forms."""
    first = letter.properties.get(names.PROPERTY_RETRY_TOPIC, "")
    return names.pop_retry_topic(group, first) if first and names.PROPERTY_POP_REF in letter.properties else ""


def _unique_key(letter: Record) -> str:
    """By which its replays are found: its own, or its offset message id where a foreign producer gave it none."""
    return letter.properties.get(names.PROPERTY_UNIQUE_KEY) or letter.offset_message_id


def _is_replay(record: Record, letter: Record) -> bool:
    """Retries of a replay carry its properties on; they are no replays themselves."""
    return not record.reconsume_times and record.properties.get(names.PROPERTY_REPLAY_OF) == letter.offset_message_id
