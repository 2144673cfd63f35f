"""The records of the revive topic, in RocketMQ's form: check points, acknowledgements, and two marks of ours. Pure.

A check point says which messages of a queue were popped at one time. Acknowledgements name a check point and offsets.
RocketMQ stores them by way of its timer, so that they come to the revive topic when they are due. Here they are written
there at once. A RocketMQ that reads them takes the latest due time for the present one, and so may make some messages
visible early; it loses none. Records of another tag it passes over. Source: RocketMQ ``PopCheckPoint``, ``AckMsg``,
``BatchAckMsg``, ``PopMessageProcessor``, ``AckMessageProcessor``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from dejamq_proto import names
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.records.hosts import Host
from dejamq_proto.records.record import Record, encode_properties
from dejamq_proto.texts import number_of

from dejamq_broker.pop.flight import CheckPointName, Keeper
from dejamq_broker.tables.offsets import Position

REVIVE_QUEUE = 0
"""One loop writes and reads all of them, so one queue is enough; RocketMQ reads it like its other seven."""
REVIVE_QUEUES = 8
CHECK_POINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
MOVED, ORDER = "moved", "order"
"""Tags of ours: a group goes on elsewhere in a queue, and how it stands with a queue that is popped in order."""
REPLACES = "POP_REPLACES"
"""A property of ours: the check point stands for a message of an earlier one, whose start offset and pop time it is.

RocketMQ needs an acknowledgement of the earlier one beside it. A crash between the two makes two copies there.
"""
ASKED = "POP_ASKED"
"""A property of ours: the delivery by whose handle the check point was asked, where it is not the one replaced."""
KEPT = "POP_KEPT"
"""A property of ours: the broker keeps the messages for this client until it says what became of them.

Of a check point it holds a ``Keeper``, of a queue in order the offsets and the client's id.
"""
BEFORE_ACKS_MS = 1000


class CheckPointBody(msgspec.Struct, kw_only=True):
    """``bits`` are those of acknowledged messages. Without ``distances`` offsets follow one another."""

    start_offset: int = msgspec.field(name="so")
    pop_time: int = msgspec.field(name="pt")
    invisible_ms: int = msgspec.field(name="it")
    bits: int = msgspec.field(name="bm", default=0)
    count: int = msgspec.field(name="n")
    queue_id: int = msgspec.field(name="q")
    topic: str = msgspec.field(name="t")
    group: str = msgspec.field(name="c")
    distances: list[int] | None = msgspec.field(name="d", default=None)
    broker_name: str | None = msgspec.field(name="bn", default=None)
    revive_offset: int = msgspec.field(name="ro", default=0)
    reput: str | None = msgspec.field(name="rp", default=None)

    @property
    def at(self) -> Position:
        return Position(self.group, self.topic, self.queue_id)

    def offsets(self) -> list[int]:
        """Queue offsets of all messages, acknowledged or not."""
        distances = range(self.count) if self.distances is None else self.distances
        return [self.start_offset + distance for distance in distances]

    def unacknowledged(self) -> list[int]:
        return [offset for at, offset in enumerate(self.offsets()) if not self.bits >> at & 1]


class AckBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """``offset`` -1: ``offsets`` are acknowledged together."""

    offset: int = msgspec.field(name="ao")
    start_offset: int = msgspec.field(name="so")
    group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    queue_id: int = msgspec.field(name="q")
    pop_time: int = msgspec.field(name="pt")
    broker_name: str | None = msgspec.field(name="bn", default=None)
    offsets: list[int] = msgspec.field(name="aol", default_factory=list)

    @property
    def at(self) -> Position:
        return Position(self.group, self.topic, self.queue_id)


class MovedBody(msgspec.Struct, kw_only=True):
    """``offset``: where the group goes on; below 0: everything known of the group and the queue is forgotten.

    An empty group means all groups, a queue id below 0 all queues of the topic; an empty topic means all topics.
    """

    group: str
    topic: str
    queue_id: int
    offset: int


class OrderBody(msgspec.Struct, kw_only=True):
    """How it stands with a queue; ``entry`` is RocketMQ's own form (``OrderInfo``)."""

    group: str
    topic: str
    queue_id: int
    next_offset: int
    entry: msgspec.Raw

    @property
    def at(self) -> Position:
        return Position(self.group, self.topic, self.queue_id)


Body = CheckPointBody | AckBody | MovedBody | OrderBody
KINDS: dict[str, type[CheckPointBody | AckBody | MovedBody | OrderBody]] = {
    CHECK_POINT: CheckPointBody, ACK: AckBody, BATCH_ACK: AckBody, MOVED: MovedBody, ORDER: OrderBody,
}  # fmt: skip


class FoundRecord(NamedTuple):
    """What a record says, what it replaces, and by whose handle it was asked. ``kept`` is the property of that name."""

    body: Body
    replaces: CheckPointName | None
    asked: CheckPointName | None
    kept: str

    def keeper(self) -> Keeper | None:
        """Of a check point. None: nobody keeps it."""
        fields = self.kept.split(" ", 3)
        times, start_offset, pop_time = map(number_of, fields[:3]) if len(fields) == 4 else (None, None, None)
        if times is None or start_offset is None or pop_time is None:
            return None
        return Keeper(fields[3], times, start_offset, pop_time)

    def keeper_in_order(self) -> tuple[str, frozenset[int]]:
        """Of a queue in order: the client, and the messages that are kept for it."""
        offsets, _, client_id = self.kept.partition(" ")
        numbers = [number_of(one) for one in offsets.split(",")]
        found = frozenset(number for number in numbers if number is not None)
        return (client_id, found) if None not in numbers else NOBODY_KEEPS


NOBODY_KEEPS = "", frozenset[int]()


class Writing(msgspec.Struct, frozen=True):
    """The facts that all records of one broker have in common."""

    topic: str
    broker_name: str
    store_host: Host


def check_point(
    on: Writing,
    at: Position,
    offsets: Sequence[int],
    pop_time: int,
    invisible_ms: int,
    *,
    replaces: CheckPointName | None = None,
    asked: CheckPointName | None = None,
    start: int | None = None,
    keeper: Keeper | None = None,
) -> Record:
    """Messages at ``offsets`` (ascending) of a queue are given to the group from ``pop_time`` on.

    ``replaces``: the delivery that this one continues, ``asked``: the one by whose handle that was asked.
    ``start``: the start offset of a check point that is written again, without those that are acknowledged.
    """
    start = offsets[0] if start is None else start
    body = CheckPointBody(
        start_offset=start, pop_time=pop_time, invisible_ms=invisible_ms, count=len(offsets), queue_id=at.queue_id,
        topic=at.topic, group=at.group, distances=[offset - start for offset in offsets], broker_name=on.broker_name,
    )  # fmt: skip
    more = {REPLACES: _named(replaces)} if replaces else {}
    if asked is not None and asked != replaces:
        more[ASKED] = _named(asked)
    if keeper is not None:
        more[KEPT] = f"{keeper.times} {keeper.start_offset} {keeper.pop_time} {keeper.client_id}"
    key = _key(on, at, start, pop_time, CHECK_POINT)
    return _record(on, CHECK_POINT, body, pop_time, pop_time + invisible_ms - BEFORE_ACKS_MS, key, more)


def ack(
    on: Writing, at: Position, start_offset: int, offsets: Sequence[int], pop_time: int, invisible_ms: int
) -> Record:
    """Messages of a check point, which its first offset and its pop time name, are done."""
    alone = len(offsets) == 1
    body = AckBody(
        offset=offsets[0] if alone else -1, start_offset=start_offset, group=at.group, topic=at.topic,
        queue_id=at.queue_id, pop_time=pop_time, broker_name=on.broker_name, offsets=[] if alone else list(offsets),
    )  # fmt: skip
    tag = ACK if alone else BATCH_ACK
    return _record(on, tag, body, pop_time, pop_time + invisible_ms, _key(on, at, offsets[0], pop_time, tag))


def moved(on: Writing, now_ms: int, group: str, topic: str, queue_id: int, offset: int) -> Record:
    """See ``MovedBody``."""
    body = MovedBody(group=group, topic=topic, queue_id=queue_id, offset=offset)
    return _record(on, MOVED, body, now_ms, 0)


def order(
    on: Writing, now_ms: int, at: Position, next_offset: int, entry: bytes, kept: tuple[str, frozenset[int]]
) -> Record:
    """See ``OrderBody``; ``kept``: the client for whom messages are kept, and these."""
    body = OrderBody(
        group=at.group, topic=at.topic, queue_id=at.queue_id, next_offset=next_offset, entry=msgspec.Raw(entry)
    )
    client_id, offsets = kept
    more = {KEPT: f"{','.join(map(str, sorted(offsets)))} {client_id}"} if offsets else {}
    return _record(on, ORDER, body, now_ms, 0, more=more)


def read(record: Record) -> FoundRecord | None:
    """None for a stranger's record."""
    properties = record.properties
    kind = KINDS.get(properties.get(names.PROPERTY_TAGS, ""))
    if kind is None:
        return None
    try:
        body = msgspec.json.decode(record.body, type=kind)
        replaces, asked = _delivery(properties.get(REPLACES)), _delivery(properties.get(ASKED))
        return FoundRecord(body, replaces, asked, properties.get(KEPT, ""))
    except (ValueError, TypeError, *BAD_JSON):
        return None


def _named(delivery: CheckPointName) -> str:
    return f"{delivery.start_offset} {delivery.pop_time}"


def _delivery(text: str | None) -> CheckPointName | None:
    """Raises ValueError or TypeError for a text that names none."""
    return CheckPointName(*map(int, text.split(" "))) if text else None


def _key(on: Writing, at: Position, offset: int, pop_time: int, tag: str) -> str:
    return f"{at.topic}@{at.queue_id}@{offset}@{at.group}@{pop_time}@{on.broker_name}@{tag}"


def _record(
    on: Writing, tag: str, body: Body, born_ms: int, due_ms: int, key: str = "", more: dict[str, str] | None = None
) -> Record:
    properties = {
        names.PROPERTY_TAGS: tag, names.PROPERTY_UNIQUE_KEY: key,
        names.PROPERTY_TIMER_DELIVER: str(due_ms) if due_ms else "", names.PROPERTY_WAIT: "false",
    } | (more or {})  # fmt: skip
    return Record(
        on.topic, REVIVE_QUEUE, msgspec.json.encode(body), encode_properties(properties),
        born_timestamp_ms=born_ms, born_host=on.store_host, store_host=on.store_host,
    )  # fmt: skip
