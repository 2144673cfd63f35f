"""Takes the lines that name a message: its sends, its records, its deliveries, what was given back."""

from collections.abc import Callable

from dejamq_proto.journal.events import Append, Boot, Deliver, Event, Fault, Gap, MemberEvent, Sendback, SendTry, State
from dejamq_proto.journal.lines import decode
from dejamq_proto.journal.readings import EnteredMessage, RecordPlace, StoredRecord, asking_delivery, messages
from dejamq_proto.names import SCHEDULE_TOPIC, TIMER_TOPIC
from dejamq_proto.texts import number_of

from dejamq_cli.history.trace import Trace, TracedDelivery

Matches = Callable[[Append | Deliver, StoredRecord | EnteredMessage], bool]


class Naming:
    """``matches`` says whether this message of the run is the wanted one."""

    def __init__(self, trace: Trace, matches: Matches) -> None:
        self._trace, self._matches = trace, matches

    def take(self, line: bytes) -> None:
        """Look at one line."""
        event = decode(line)
        if isinstance(event, Append | Deliver):
            self._records(event)
        elif isinstance(event, State | Boot | Fault | Gap | MemberEvent):
            self._trace.lived(event)
        elif event is not None:
            self._other(event)

    def _records(self, event: Append | Deliver) -> None:
        for one in messages(event):
            if self._matches(event, one):
                self._trace.take(event, one)

    def _other(self, event: Event) -> None:
        keys: list[str] = getattr(event, "unique_keys", None) or [getattr(event, "unique_key", "")]
        named = bool(self._trace.key) and self._trace.key in keys
        if not named and not self._gives_back(event):
            return
        if isinstance(event, SendTry):
            self._trace.sent(event)
        else:
            self._trace.keep(event)

    def _gives_back(self, event: Event) -> bool:
        return isinstance(event, Sendback) and any(
            TracedDelivery(event.boot_id, number) in self._trace.deliveries for number in event.delivery_ids
        )

    def describe_witnesses(self) -> None:
        """Note each process's own words: its level, and whether it ended."""
        for state in (event for event in self._trace.life if isinstance(event, State)):
            witness = self._trace.witnesses.get(state.boot_id)
            if witness is None:
                continue
            witness.closed |= state.state == "closed"
            if state.state == "started":
                witness.level = state.reason.partition("level=")[2].split(" ")[0]


def by_key(key: str) -> Matches:
    """All copies of a message have its unique key: retries, dead letters, and what was delayed."""
    return lambda event, one: one.unique_key == key


def by_origin(trace: Trace) -> Matches:
    """For a message without a unique key: a copy is what was made from a copy that is known already."""

    def matches(event: Append | Deliver, one: StoredRecord | EnteredMessage) -> bool:
        if one.place in trace.copies:
            return True
        if isinstance(one, EnteredMessage):
            return one.origin_id in {copy.offset_message_id for copy in trace.copies.values()} - {""}
        return isinstance(event, Append) and _is_made_from(trace, event, one.origin_ref)

    return matches


def _is_made_from(trace: Trace, event: Append, ref: str) -> bool:
    """``ref`` is ``boot:delivery`` of what was given back, ``level:queue offset`` of what was delayed, ``slot:queue
    offset`` of what waited for its time, the broker-made id of a dead letter that was sent again.
    """
    if event.origin == "admin":
        return ref in {copy.offset_message_id for copy in trace.copies.values()}
    source, _, text = ref.rpartition(":")
    number, level = number_of(text), number_of(source)
    if number is None:
        return False
    if event.origin == "schedule" and level is not None:
        return RecordPlace(event.broker_name, SCHEDULE_TOPIC, level - 1, number) in trace.copies
    if event.origin in ("timer", "timer_roll"):
        return RecordPlace(event.broker_name, TIMER_TOPIC, 0, number) in trace.copies
    return asking_delivery(ref) in trace.deliveries
