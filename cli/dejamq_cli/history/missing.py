"""What the journals do not say of a message: whose journal is not there, where one has holes, what has no answer."""

from collections.abc import Iterator

from dejamq_proto import events as ev
from dejamq_proto.journal import FLUSH_INTERVAL_MS, Level

from dejamq_cli.history.files import Witness
from dejamq_cli.history.trace import Delivery, Trace


def missing_evidence(trace: Trace, names: dict[str, str]) -> list[str]:
    """One sentence each; empty when the journals of all concerned are whole and every try and delivery has its end."""
    events = list(trace.events.values())
    present = [trace.witnesses[boot_id] for boot_id in names if boot_id in trace.witnesses]
    return [
        *_absent(trace, events, names),
        *(text for witness in present for text in _about(witness, names[witness.boot_id])),
        *_unanswered(trace, events, names),
        *_clocks(events, names),
    ]


def _absent(trace: Trace, events: list[ev.Event], names: dict[str, str]) -> Iterator[str]:
    """Processes that others speak of, without a journal here."""
    for boot_id, name in names.items():
        if boot_id not in trace.witnesses:
            yield f"{name}: its journal is not here (boot id {boot_id})"
    brokers = {place.broker_name for place in trace.copies}
    brokers |= {event.broker_name for event in events if isinstance(event, ev.SendTry)}
    there = {event.broker_name for event in trace.life if isinstance(event, ev.Boot)}
    there |= {event.broker_name for event in events if isinstance(event, ev.Append)}
    for broker in sorted(brokers - there):
        yield f"no journal of broker {broker}"
    senders = {event.client_boot_id for event in events if isinstance(event, ev.Append)}
    told_of_already = any(boot_id not in trace.witnesses for boot_id in senders & names.keys())
    if not told_of_already and not any(isinstance(event, ev.SendTry) for event in events):
        yield "no line of the producer's: its journal, or the part of it that sent the message, is not here"


def _about(witness: Witness, name: str) -> Iterator[str]:
    """How whole one journal is."""
    if witness.missing:
        yield f"{name}: {witness.missing} of its lines are not there" + (
            ", and the last one is torn" * bool(witness.torn)
        )
    elif witness.torn:
        yield f"{name}: its last line is torn"
    if not witness.closed:
        lost = f", and with it up to {FLUSH_INTERVAL_MS} ms of lines" if witness.level == Level.AUDIT else ""
        yield f"{name} has no line of its end: it was killed{lost}, or runs on"


def _unanswered(trace: Trace, events: list[ev.Event], names: dict[str, str]) -> Iterator[str]:
    answered = {(event.boot_id, event.request_seq) for event in events if isinstance(event, ev.SendResult)}
    for (boot_id, request), number in trace.tries.items():
        if (boot_id, request) not in answered:
            yield f"{names[boot_id]}: try {number} has no answer"
    ended = {
        Delivery(event.boot_id, number)
        for event in events if isinstance(event, ev.Result) for number in event.delivery_ids
    }  # fmt: skip
    for delivery, number in trace.delivery_numbers().items():
        if delivery not in ended:
            name = names[delivery.boot_id]
            yield f"{name}: delivery {number} has no result, it was running when the journal ends"


def _clocks(events: list[ev.Event], names: dict[str, str]) -> Iterator[str]:
    """A record cannot be stored before it is sent: where the lines say so, two clocks differ by at least as much."""
    sent = {(event.boot_id, event.request_seq): event for event in events if isinstance(event, ev.SendTry)}
    behind: dict[tuple[str, str], int] = {}
    for event in events:
        if isinstance(event, ev.Append) and (tried := sent.get((event.client_boot_id, event.request_seq))):
            pair = names[event.boot_id], names[tried.boot_id]
            behind[pair] = max(behind.get(pair, 0), tried.wall_us - event.wall_us)
    for (broker, client), by_us in behind.items():
        if by_us > 0:
            clock = f"the clock of {broker} is at least {by_us / 1000:.1f} ms behind that of {client}"
            yield f"{clock}: their steps are not in the order in which they happened"
