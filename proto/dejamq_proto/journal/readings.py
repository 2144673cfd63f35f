"""What events say of single messages: one row each, for everybody who reads journals.

A line tells of a run of messages in columns, a field with one element a message. ``COLUMNS`` names them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from dejamq_proto.journal.events import (
    Append,
    Deliver,
    Event,
    Pop,
    Pull,
    Repeat,
    Result,
    Sendback,
    SendEnd,
    SendTry,
)
from dejamq_proto.texts import number_of

ASKED_FOR_AGAIN = frozenset({"reconsume", "exception", "timeout", "wrong_value", "suspend", "rollback", "uncommitted"})
"""Results by which a consumer asks for its message again: the next delivery is no duplicate."""


class Columns(NamedTuple):
    """Fields with one element a message. ``optional`` ones may be left out; of ``shared`` one element may be of all."""

    always: tuple[str, ...]
    optional: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return self.always + self.optional + self.shared


COLUMNS: dict[type[Event], Columns] = {
    SendTry: Columns(("call_ids", "tries", "unique_keys"), ("business_keys",), ("modes",)),
    SendEnd: Columns(("call_ids", "unique_keys")),
    Append: Columns(
        ("queue_index", "queue_offsets", "log_offsets", "unique_keys"), ("origin_refs", "reconsume_times")
    ),
    Repeat: Columns(("queue_index", "queue_offsets", "log_offsets", "unique_keys", "first_unique_keys")),
    Deliver: Columns(
        ("delivery_ids", "queue_offsets", "log_offsets", "unique_keys"),
        ("reconsume_times", "origin_ids", "business_keys"), ("store_hosts",),
    ),
    Result: Columns(("delivery_ids", "queue_offsets")),
    Sendback: Columns(("delivery_ids", "queue_offsets", "unique_keys")),
}  # fmt: skip


def is_whole(event: Event) -> bool:
    """Whether its columns are of one length, as their writer leaves them: only damage makes them differ."""
    columns = COLUMNS.get(type(event))
    if columns is None:
        return True
    counts = {len(getattr(event, name)) for name in columns.always}
    if len(counts) > 1:
        return False
    allowed = counts | {0}
    if not all(len(getattr(event, name)) in allowed for name in columns.optional):
        return False
    if not all(len(getattr(event, name)) in allowed | {1} for name in columns.shared):
        return False
    return not isinstance(event, Append | Repeat) or _names_its_queues(event)


def _names_its_queues(event: Append | Repeat) -> bool:
    known = range(min(len(event.topics), len(event.queue_ids)))
    return all(number in known for number in event.queue_index)


class RecordPlace(NamedTuple):
    """Where a record lies."""

    broker_name: str
    topic: str
    queue_id: int
    queue_offset: int


class StoredRecord(NamedTuple):
    """A record of an APPEND. ``unique_key`` and ``origin_ref`` are empty where it has none."""

    place: RecordPlace
    log_offset: int
    unique_key: str
    origin_ref: str


class EnteredMessage(NamedTuple):
    """A message of a DELIVER: a handler was entered with it. Texts are empty where the line does not say."""

    delivery_id: int
    place: RecordPlace
    log_offset: int
    unique_key: str
    business_key: str
    origin_id: str
    store_host: str


def messages(event: Append | Deliver) -> Sequence[StoredRecord | EnteredMessage]:
    """Of either, in the order of its run."""
    return stored(event) if isinstance(event, Append) else entered(event)


def stored(append: Append) -> list[StoredRecord]:
    """The records of a run, in its order."""
    queues = list(zip(append.topics, append.queue_ids, strict=False))
    columns = (append.queue_index, append.queue_offsets, append.log_offsets, append.unique_keys)
    refs = _told(append.origin_refs, len(append.queue_offsets))
    return [
        StoredRecord(RecordPlace(append.broker_name, *queues[queue], offset), log_offset, key, ref)
        for queue, offset, log_offset, key, ref in zip(*columns, refs, strict=True)
    ]


def entered(deliver: Deliver) -> list[EnteredMessage]:
    """The messages of a run, in its order."""
    queue, count = (deliver.broker_name, deliver.topic, deliver.queue_id), len(deliver.delivery_ids)
    hosts = deliver.store_hosts * count if len(deliver.store_hosts) == 1 else deliver.store_hosts
    columns = (
        deliver.delivery_ids, deliver.queue_offsets, deliver.log_offsets, deliver.unique_keys,
        _told(deliver.business_keys, count), _told(deliver.origin_ids, count), _told(hosts, count),
    )  # fmt: skip
    return [
        EnteredMessage(number, RecordPlace(*queue, offset), *rest)
        for number, offset, *rest in zip(*columns, strict=True)
    ]  # fmt: skip


def handed_out(answer: Pull | Pop) -> Iterator[RecordPlace]:
    """The places of which records left a broker. Of a PULL with fewer records than places nobody knows which."""
    pulled = isinstance(answer, Pull)
    offsets = range(answer.request_offset, answer.next_offset) if pulled else answer.queue_offsets  # type: ignore[union-attr]
    for offset in offsets:
        yield RecordPlace(answer.broker_name, answer.topic, answer.queue_id, offset)


def asking_delivery(origin_ref: str) -> tuple[str, int] | None:
    """Of a record that a consumer asked for: boot id and delivery id of ``boot:delivery``. None for any other."""
    boot_id, _, text = origin_ref.rpartition(":")
    number = number_of(text)
    return (boot_id, number) if boot_id and number is not None else None


def _told(column: list[Any], count: int) -> list[Any]:
    return column or [""] * count
