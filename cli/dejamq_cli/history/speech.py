"""How a story speaks of copies, clients and deliveries."""

from collections.abc import Callable
from typing import Any

from dejamq_proto.journal import events as ev
from dejamq_proto.journal.readings import RecordPlace
from dejamq_proto.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from dejamq_proto.texts import number_of

from dejamq_cli.history.trace import Copy, Trace, TracedDelivery

SENT = ("client", "tx_half")
"""Origins of what a producer asked for."""
MADE_OF_HALVES = {
    "tx_check": "was stored anew for its check",
    "tx_final": "was committed",
    "tx_given_up": "was given up",
}


class Speech:
    """``name_of`` shortens a boot id; ``numbers`` counts the deliveries of the message from 1."""

    def __init__(self, trace: Trace, name_of: Callable[[str], str]) -> None:
        self.trace, self.name_of, self.numbers = trace, name_of, trace.delivery_numbers()

    def made_from(self, copy: Copy) -> str:
        """The origin of a copy, as far as the journals tell."""
        source, _, text = copy.origin_ref.rpartition(":")
        number, level = number_of(text), number_of(source)
        if copy.origin == "sendback" and number is not None:
            delivery = self.numbers.get(TracedDelivery(source, number))
            after = f" after delivery {delivery}" if delivery else ""
            return f"given back by {self.name_of(source)}{after}"
        if copy.origin == "schedule" and level is not None and number is not None:
            waited = self.trace.copies.get(RecordPlace(copy.place.broker_name, SCHEDULE_TOPIC, level - 1, number))
            return f"{named(waited)} was due" if waited else f"due at delay level {source}"
        if copy.origin in ("timer", "timer_roll") and number is not None:
            waited = self.trace.copies.get(RecordPlace(copy.place.broker_name, TIMER_TOPIC, 0, number))
            return f"{named(waited)} was due" if waited else "its time had come"
        if copy.origin == "admin":
            letter = next((c for c in self.trace.copies.values() if c.offset_message_id == copy.origin_ref), None)
            return f"{named(letter) if letter else copy.origin_ref} was sent again by an operator"
        if copy.origin in MADE_OF_HALVES and number is not None:
            half = self._half_at(copy.place.broker_name, number)
            return f"{named(half) if half else 'a half message'} {MADE_OF_HALVES[copy.origin]}"
        if copy.origin in SENT:
            return f"sent by {self.name_of(copy.sender)}" if copy.sender else "sent"
        return f"{copy.origin} {copy.origin_ref}".strip() or "not known"

    def _half_at(self, broker_name: str, log_offset: int) -> Copy | None:
        for copy in self.trace.copies.values():
            if (copy.place.broker_name, copy.place.topic, copy.log_offset) == (broker_name, HALF_TOPIC, log_offset):
                return copy
        return None

    def deliveries_of(self, event: ev.Result | ev.Sendback) -> str:
        """Their numbers in the story."""
        numbers = (self.numbers.get(TracedDelivery(event.boot_id, number)) for number in event.delivery_ids)
        return ", ".join(str(number) for number in numbers if number) or "unknown"

    def copies_in(self, broker_name: str, topic: str, queue_id: int, offsets: range) -> str:
        """The copies that lie there."""
        found = [c for c in self.trace.copies.values()
                 if c.place[:3] == (broker_name, topic, queue_id) and c.place.queue_offset in offsets]  # fmt: skip
        return ", ".join(named(copy) for copy in sorted(found, key=lambda copy: copy.number))


def named(copy: Copy) -> str:
    """How a story speaks of it."""
    return f"copy {copy.number}"


def queue_text(queue: Any) -> str:
    """``broker topic:queue``."""
    return f"{queue.broker_name} {queue.topic}:{queue.queue_id}"
