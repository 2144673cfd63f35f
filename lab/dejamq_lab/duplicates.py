"""Duplicates by identity alone, straight from the journals: quick enough for an assertion, no causes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from dejamq_proto.journal.events import Change, Deliver, Result

decode_deliver = msgspec.json.Decoder(Deliver).decode
decode_result = msgspec.json.Decoder(Result).decode
decode_change = msgspec.json.Decoder(Change).decode
ASKED_FOR_AGAIN = frozenset({"reconsume", "exception", "timeout", "wrong_value", "suspend", "rollback", "uncommitted"})


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
    def place(self) -> tuple[str, str, int, int]:
        return self.broker_name, self.topic, self.queue_id, self.queue_offset


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
    for line in _lines(journal_dirs):
        if line.startswith(b'{"event":"DELIVER"'):
            deliver = decode_deliver(line)
            if deliver.group == group:
                deliveries += _of(deliver)
        elif line.startswith(b'{"event":"RESULT"'):
            result = decode_result(line)
            if result.group == group and result.status in ASKED_FOR_AGAIN:
                asked.update((result.boot_id, delivery_id) for delivery_id in result.delivery_ids)
        elif line.startswith(b'{"event":"CHANGE"'):
            change = decode_change(line)
            if change.group == group and change.how == "visible":
                place = change.broker_name, change.topic, change.queue_id, change.queue_offset
                asked.add((change.client_boot_id, place))
    return deliveries, asked


def _lines(journal_dirs: Iterable[Path]) -> Iterable[bytes]:
    """Whole lines only: the last one of a killed process may be torn."""
    for path in (path for folder in journal_dirs for path in sorted(folder.glob("*.jsonl"))):
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"}\n"))


def _of(run: Deliver) -> Iterator[Delivery]:
    keys = run.business_keys or [""] * len(run.delivery_ids)
    for delivery_id, queue_offset, unique_key, key in zip(
        run.delivery_ids, run.queue_offsets, run.unique_keys, keys, strict=True
    ):
        yield Delivery(
            run.process, run.boot_id, delivery_id, run.broker_name, run.topic, run.queue_id, queue_offset,
            unique_key, key, run.wall_us,
        )  # fmt: skip
