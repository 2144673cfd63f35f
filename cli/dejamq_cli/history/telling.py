"""Makes a story of a trace: who took part, the copies, the steps in time order, how each group stands."""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from dejamq_proto.journal import events as ev
from dejamq_proto.journal.readings import ASKED_FOR_AGAIN
from dejamq_proto.journal.writer import FLUSH_INTERVAL_MS, Level
from dejamq_proto.names import TOOLS_GROUP, TRANSACTION_GROUP

from dejamq_cli.history.files import Witness
from dejamq_cli.history.speech import SENT, Speech
from dejamq_cli.history.story import GroupEnd, HandlerEntry, MessageStory, Participant, StoredCopy, StoryStep
from dejamq_cli.history.trace import Trace, TracedDelivery
from dejamq_cli.history.words import Words

# Missing evidence about a message: an absent journal, a journal with holes, a request without an answer.


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
    answered = {(event.boot_id, event.request_seq) for event in events if isinstance(event, ev.SendResultEvent)}
    for (boot_id, request), number in trace.tries.items():
        if (boot_id, request) not in answered:
            yield f"{names[boot_id]}: try {number} has no answer"
    ended = {
        TracedDelivery(event.boot_id, number)
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


# The end of the message: each delivery with its result, and the state of each group.


def handled(trace: Trace, events: Iterable[ev.Event], names: dict[str, str]) -> list[HandlerEntry]:
    """Every delivery in the order of their times."""
    results: dict[TracedDelivery, str] = {}
    groups: dict[TracedDelivery, str] = {}
    for event in events:
        if isinstance(event, ev.Result):
            results |= {TracedDelivery(event.boot_id, number): event.status for number in event.delivery_ids}
        elif isinstance(event, ev.Deliver):
            groups |= {TracedDelivery(event.boot_id, number): event.group for number in event.delivery_ids}
    return [
        HandlerEntry(
            number, f"{one.boot_id}-{one.number}", groups[one], names[one.boot_id],
            trace.copies[trace.deliveries[one]].number, results.get(one, ""),
        )
        for one, number in trace.delivery_numbers().items()
    ]  # fmt: skip


def group_ends(trace: Trace, events: Iterable[ev.Event], deliveries: list[HandlerEntry]) -> list[GroupEnd]:
    """Every group that handled the message or has committed past a copy of it, by name."""
    found: dict[str, GroupEnd] = {}
    for one in deliveries:
        end = found.setdefault(one.group, GroupEnd(one.group, 0, [], [], 0))
        end.unasked += bool(end.results) and end.results[-1] not in ASKED_FOR_AGAIN
        end.results.append(one.result)
        end.deliveries += 1
    for group, numbers in _committed(trace, events).items():
        found.setdefault(group, GroupEnd(group, 0, [], [], 0)).committed_past = sorted(numbers)
    return sorted(found.values(), key=lambda end: end.group)


def _committed(trace: Trace, events: Iterable[ev.Event]) -> dict[str, set[int]]:
    """The numbers of the copies that each group is past, as the brokers' last words are."""
    past: dict[str, set[int]] = defaultdict(set)
    for event in events:
        if isinstance(event, ev.OffSet) and event.group != TRANSACTION_GROUP:
            queue = event.broker_name, event.topic, event.queue_id
            numbers = past[event.group]
            for copy in (copy for copy in trace.copies.values() if copy.place[:3] == queue):
                (numbers.add if copy.place.queue_offset < event.new else numbers.discard)(copy.number)
    return past


SHORT = {"producer": "P", "consumer": "C"}
READER = "R"
"""Of the command line and of dashboards, which look and consume nothing."""


def tell(trace: Trace) -> MessageStory:
    """Put what was found in order and into words."""
    events = list(_in_order(trace))
    actors = _actors(trace, events)
    names = {actor.boot_id: actor.name for actor in actors}
    known = {actor.process: actor.name for actor in actors} | names
    speech = Speech(trace, lambda process: known.get(process, f"process {process}"))
    witnesses = {actor.boot_id: actor.name for actor in actors if actor.role != "reader"}
    deliveries = handled(trace, events, names)
    copies = list(_copies(speech))
    return MessageStory(
        message_id=trace.key or copies[0].offset_message_id, topic=trace.topic, processes=actors, copies=copies,
        deliveries=deliveries, groups=group_ends(trace, events, deliveries), missing=missing_evidence(trace, witnesses),
        steps=_steps(trace, events, names, Words(speech)),
    )  # fmt: skip


def _steps(trace: Trace, events: list[ev.Event], names: dict[str, str], words: Words) -> list[StoryStep]:
    """The lines, and where the journal of a client breaks off while others go on with it: no line says so."""
    steps = [
        StoryStep(one.wall_us, names[one.boot_id], one.boot_id, one.seq, str(one.__struct_config__.tag), words.say(one))
        for one in events
    ]
    speakers = {one.boot_id for one in events} & trace.witnesses.keys()
    last_us = max(one.wall_us for one in events if not _is_end(one))
    for witness in (trace.witnesses[boot_id] for boot_id in names if boot_id in speakers):
        if not witness.closed and witness.role in SHORT and witness.last_wall_us < last_us:
            after = bisect_right(steps, witness.last_wall_us, key=lambda step: step.wall_us)
            place = witness.last_wall_us, names[witness.boot_id], witness.boot_id, witness.last_seq
            steps.insert(after, StoryStep(*place, "", "its journal breaks off here"))
    return steps


def _copies(speech: Speech) -> Iterator[StoredCopy]:
    for one in sorted(speech.trace.copies.values(), key=lambda copy: copy.number):
        yield StoredCopy(one.number, *one.place, one.offset_message_id, speech.made_from(one))


def _in_order(trace: Trace) -> Iterator[ev.Event]:
    """By the clocks of the processes; lines of one process in its own order, whatever its clock did."""
    of_process: dict[str, list[ev.Event]] = defaultdict(list)
    for event in [*trace.events.values(), *_life(trace)]:
        of_process[event.boot_id].append(event)
    ordered = (sorted(events, key=lambda event: event.seq) for events in of_process.values())
    return heapq.merge(*ordered, key=lambda event: event.wall_us)


def _life(trace: Trace) -> Iterator[ev.Event]:
    """The lives of the processes concerned, between the first and the last line about the message, and their ends.

    An end that comes later is told too: without it nobody sees whether a process ended or breaks off.
    """
    times = [event.wall_us for event in trace.events.values()]
    concerned = {event.boot_id for event in trace.events.values()}
    brokers = {place.broker_name for place in trace.copies}
    targets = brokers | {one.process for boot_id, one in trace.witnesses.items() if boot_id in concerned}
    consumers = {delivery.boot_id for delivery in trace.deliveries}
    for event in trace.life:
        if isinstance(event, ev.Boot):
            mine = event.broker_name in brokers
        elif isinstance(event, ev.Fault):
            mine = event.target in targets
        elif isinstance(event, ev.MemberEvent):
            mine = event.client_boot_id in consumers and event.broker_name in brokers and event.change == "-"
        else:  # a broker's STATE says what its BOOT says
            mine = event.boot_id in concerned and not (isinstance(event, ev.State) and event.state == "started")
        if mine and min(times) <= event.wall_us and (event.wall_us <= max(times) or _is_end(event)):
            yield event


def _is_end(event: ev.Event) -> bool:
    return isinstance(event, ev.State) and event.state == "closed"


def _actors(trace: Trace, events: list[ev.Event]) -> list[Participant]:
    """Brokers by their own names; producers are P1, P2, …, consumers C1, C2, … in the order of their first lines."""
    actors: dict[str, Participant] = {}
    for event in events:
        if event.boot_id not in actors:
            witness = trace.witnesses.get(event.boot_id)
            process = witness.process if witness else event.process
            name = _short_name(event, [actor for actor in actors.values() if actor.role == event.role])
            actors[event.boot_id] = Participant(name, event.role, process, event.boot_id, [])
        group: str = getattr(event, "group", "")
        if event.role == "broker":
            _add_client(trace, actors, event)
        elif group and group not in actors[event.boot_id].groups:
            actors[event.boot_id].groups.append(group)
    return list(actors.values())


def _add_client(trace: Trace, actors: dict[str, Participant], event: ev.Event) -> None:
    """A client that only a broker speaks of: its own journal is not here, or does not mention the message."""
    boot_id: str = getattr(event, "client_boot_id", "")
    if not boot_id or boot_id in actors or isinstance(event, ev.MemberEvent):
        return
    role = "producer" if isinstance(event, ev.Append) and event.origin in SENT else "consumer"
    if getattr(event, "group", "") == TOOLS_GROUP:
        role = "reader"
    number = 1 + sum(actor.role == role for actor in actors.values())
    witness, group = trace.witnesses.get(boot_id), getattr(event, "group", "")
    process: str = witness.process if witness else getattr(event, "client_id", "") or "unknown"
    actors[boot_id] = Participant(
        f"{SHORT.get(role, READER)}{number}", role, process, boot_id, [group] if group else []
    )


def _short_name(event: ev.Event, before: list[Participant]) -> str:
    name: str = getattr(event, "broker_name", "") if event.role == "broker" else ""
    if not name:
        return f"{SHORT.get(event.role, event.role)}{len(before) + 1}"
    starts = sum(actor.name.split("/")[0] == name for actor in before)
    return f"{name}/{starts + 1}" if starts else name
