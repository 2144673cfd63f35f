"""Duplicates by identity alone, straight from the journals: quick enough for an assertion, no causes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Change, Deliver, Result
from dejamq_proto.journal.readings import ASKED_FOR_AGAIN, RecordPlace, entered


@dataclass(frozen=True)
class Delivery:
    """A handler was entered with one message. ``delivery_id`` is unique within ``boot_id``."""

    process: str
    boot_id: str
    delivery_id: int
    broker_name: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    business_key: str
    wall_us: int

    @property
    def place(self) -> RecordPlace:
        return RecordPlace(self.broker_name, self.topic, self.queue_id, self.queue_offset)


@dataclass(frozen=True)
class Duplicate:
    """Two deliveries of the same thing that nobody asked for.

    ``identity``: I1 the same stored record, I2 another record with the same message id, I3 with the same business key.
    """

    identity: str
    group: str
    message_id: str
    first: Delivery
    second: Delivery


def find_duplicates(journal_dir: Path, group: str, beside: Iterable[Path] = ()) -> list[Duplicate]:
    """Every second and later delivery to the group, also in the journals ``beside``. A retry after a failed handler is
    no duplicate, nor is a popped message that its consumer gave back.
    """
    deliveries, asked = _read([journal_dir, *beside], group)
    deliveries.sort(key=lambda delivery: (delivery.wall_us, delivery.boot_id, delivery.delivery_id))
    last: dict[object, Delivery] = {}
    found = []
    for delivery in deliveries:
        for identity, key in _identities(delivery):
            first = last.get(key)
            if first is not None:
                if (first.boot_id, first.delivery_id) not in asked and (first.boot_id, first.place) not in asked:
                    found.append(Duplicate(identity, group, delivery.message_id, first, delivery))
                break
        last.update((key, delivery) for _, key in _identities(delivery))
    return found


def _identities(delivery: Delivery) -> Iterator[tuple[str, object]]:
    """Strongest first: a delivery counts once."""
    if delivery.queue_offset >= 0:  # evidence may not tell which stored record it was
        yield "I1", delivery.place
    if delivery.message_id:
        yield "I2", delivery.message_id
    if delivery.business_key:
        yield "I3", ("business key", delivery.business_key)


def _read(journal_dirs: Iterable[Path], group: str) -> tuple[list[Delivery], set[tuple[str, object]]]:
    """The deliveries, and which of them a consumer wanted again: by the consumer's start, and number or place."""
    deliveries: list[Delivery] = []
    asked: set[tuple[str, object]] = set()
    paths = (path for folder in journal_dirs for path in lines.files_in(folder))
    for event in lines.events(paths, Deliver, Result, Change):
        if event.group != group:
            continue
        if isinstance(event, Deliver):
            deliveries += _of(event)
        elif isinstance(event, Result):
            if event.status in ASKED_FOR_AGAIN:
                asked.update((event.boot_id, delivery_id) for delivery_id in event.delivery_ids)
        elif event.how == "visible":
            place = RecordPlace(event.broker_name, event.topic, event.queue_id, event.queue_offset)
            asked.add((event.client_boot_id, place))
    return deliveries, asked


def _of(run: Deliver) -> Iterator[Delivery]:
    for one in entered(run):
        yield Delivery(
            run.process, run.boot_id, one.delivery_id, *one.place, one.unique_key, one.business_key, run.wall_us
        )
