"""One message in the journals: its copies, its deliveries, and the lines about them."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from dejamq_proto.journal.events import Append, Boot, Deliver, Event, SendTry
from dejamq_proto.journal.readings import EnteredMessage, RecordPlace, StoredRecord, messages
from dejamq_proto.names import SCHEDULE_TOPIC, TIMER_TOPIC
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.texts import MOST_32, number_of

from dejamq_cli.history.files import Witness


class Copy(msgspec.Struct):
    """One stored record of the message. ``origin`` is empty where no broker's journal tells of it."""

    number: int
    place: RecordPlace
    log_offset: int
    origin: str = ""
    origin_ref: str = ""
    sender: str = ""
    """Boot id of the client that asked for it to be stored."""
    host: str = ""

    @property
    def offset_message_id(self) -> str:
        """The broker-made id; empty while the broker's address is not known, or is not an IPv4 address."""
        address, _, text = self.host.rpartition(":")
        port = number_of(text, MOST_32)
        if not address or port is None or ":" in address:
            return ""
        try:
            return offset_message_id((address, port), self.log_offset)
        except (OSError, ValueError):
            return ""


class TracedDelivery(NamedTuple):
    """One handler that was entered."""

    boot_id: str
    number: int


class Trace:
    """Grows while the journals are read. ``key`` is the message's own id, empty where its producer set none."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.topic = ""
        self.copies: dict[RecordPlace, Copy] = {}
        self.tries: dict[tuple[str, int], int] = {}
        """(boot id, request) of the sends that carried it, to the number of the try."""
        self.deliveries: dict[TracedDelivery, RecordPlace] = {}
        self.queues_of: set[tuple[str, int]] = set()
        """(boot id, process queue) that it was delivered from."""
        self.events: dict[tuple[str, int], Event] = {}
        self.witnesses: dict[str, Witness] = {}
        self._life: dict[tuple[str, int], Event] = {}

    @property
    def life(self) -> list[Event]:
        """Starts and ends of processes, and what was done to them: of all, not only of those concerned."""
        return list(self._life.values())

    def lived(self, event: Event) -> None:
        """A line of that kind. One that is in two of the folders counts once."""
        self._life[event.boot_id, event.seq] = event

    def keep(self, event: Event) -> None:
        """The line speaks of the message."""
        self.events[event.boot_id, event.seq] = event

    def sent(self, event: SendTry) -> None:
        """A run with the message left."""
        for key, number in zip(event.unique_keys, event.tries, strict=True):
            if key == self.key:
                self.tries[event.boot_id, event.request_seq] = number
        if len(event.topics) == 1:
            self.topic = self.topic or event.topics[0]
        self.keep(event)

    def take(self, event: Append | Deliver, one: StoredRecord | EnteredMessage) -> None:
        """A record of the run is a copy, or a message of it is one."""
        copy = self._copy(one.place, one.log_offset)
        if isinstance(event, Append) and isinstance(one, StoredRecord):
            copy.origin, copy.sender, copy.origin_ref = event.origin, event.client_boot_id, one.origin_ref
        elif isinstance(event, Deliver) and isinstance(one, EnteredMessage):
            copy.host = one.store_host or copy.host
            self.deliveries[TracedDelivery(event.boot_id, one.delivery_id)] = one.place
            self.queues_of.add((event.boot_id, event.pq_id))
        self.keep(event)

    def _copy(self, place: RecordPlace, log_offset: int) -> Copy:
        return self.copies.setdefault(place, Copy(len(self.copies) + 1, place, log_offset))

    def complete(self) -> None:
        """Everything is read: addresses of brokers are known, and copies are numbered in the order of their times."""
        boots = sorted((event for event in self.life if isinstance(event, Boot)), key=lambda boot: boot.wall_us)
        hosts = {boot.broker_name: boot.address for boot in boots}
        when = {place: time for time, place in sorted(self._times(), reverse=True)}
        ordered = sorted(self.copies.values(), key=lambda copy: when.get(copy.place, 0))
        for number, copy in enumerate(ordered, 1):
            copy.number = number
            copy.host = copy.host or hosts.get(copy.place.broker_name, "")
        topics = (copy.place.topic for copy in ordered)
        self.topic = self.topic or next((topic for topic in topics if topic not in (SCHEDULE_TOPIC, TIMER_TOPIC)), "")

    def delivery_numbers(self) -> dict[TracedDelivery, int]:
        """The deliveries of the message counted from 1, in the order of their times."""
        entered = sorted(
            (event.wall_us, event.boot_id, number)
            for event in self.events.values()
            if isinstance(event, Deliver)
            for number in event.delivery_ids
            if TracedDelivery(event.boot_id, number) in self.deliveries
        )
        return {TracedDelivery(boot_id, number): count for count, (_, boot_id, number) in enumerate(entered, 1)}

    def _times(self) -> Iterator[tuple[int, RecordPlace]]:
        """When each copy is spoken of."""
        for event in self.events.values():
            if isinstance(event, Append | Deliver):
                yield from ((event.wall_us, one.place) for one in messages(event) if one.place in self.copies)
