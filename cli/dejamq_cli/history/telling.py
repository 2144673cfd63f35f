"""Makes a story of a trace: who took part, the copies, the steps in time order, how each group stands."""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from dejamq.admin_messages import TOOLS_GROUP
from dejamq_proto import events as ev

from dejamq_cli.history.missing import missing_evidence
from dejamq_cli.history.outcome import group_ends, handled
from dejamq_cli.history.speech import SENT, Speech
from dejamq_cli.history.story import Actor, Step, StoredCopy, Story
from dejamq_cli.history.trace import Trace
from dejamq_cli.history.words import Words

SHORT = {"producer": "P", "consumer": "C"}
READER = "R"
"""Of the command line and of dashboards, which look and consume nothing."""


def tell(trace: Trace) -> Story:
    """Put what was found in order and into words."""
    events = list(_in_order(trace))
    actors = _actors(trace, events)
    names = {actor.boot_id: actor.name for actor in actors}
    known = {actor.process: actor.name for actor in actors} | names
    speech = Speech(trace, lambda process: known.get(process, f"process {process}"))
    witnesses = {actor.boot_id: actor.name for actor in actors if actor.role != "reader"}
    deliveries = handled(trace, events, names)
    copies = list(_copies(speech))
    return Story(
        message_id=trace.key or copies[0].offset_message_id, topic=trace.topic, processes=actors, copies=copies,
        deliveries=deliveries, groups=group_ends(trace, events, deliveries), missing=missing_evidence(trace, witnesses),
        steps=_steps(trace, events, names, Words(speech)),
    )  # fmt: skip


def _steps(trace: Trace, events: list[ev.Event], names: dict[str, str], words: Words) -> list[Step]:
    """The lines, and where the journal of a client breaks off while others go on: no line says so."""
    steps = [
        Step(one.wall_us, names[one.boot_id], one.boot_id, one.seq, str(one.__struct_config__.tag), words.say(one))
        for one in events
    ]
    speakers = {one.boot_id for one in events} & trace.witnesses.keys()
    for witness in (trace.witnesses[boot_id] for boot_id in names if boot_id in speakers):
        if not witness.closed and witness.role in SHORT and witness.last_wall_us < steps[-1].wall_us:
            after = bisect_right(steps, witness.last_wall_us, key=lambda step: step.wall_us)
            place = witness.last_wall_us, names[witness.boot_id], witness.boot_id, witness.last_seq
            steps.insert(after, Step(*place, "", "its journal breaks off here"))
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
    """What became of those concerned, between the first and the last line about the message."""
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
        elif isinstance(event, ev.Member):
            mine = event.client_boot_id in consumers and event.broker_name in brokers and event.change == "-"
        else:  # a broker's STATE says what its BOOT says
            mine = event.boot_id in concerned and not (isinstance(event, ev.State) and event.state == "started")
        if mine and min(times) <= event.wall_us <= max(times):
            yield event


def _actors(trace: Trace, events: list[ev.Event]) -> list[Actor]:
    """Brokers by their own names; producers are P1, P2, …, consumers C1, C2, … in the order of their first lines."""
    actors: dict[str, Actor] = {}
    for event in events:
        if event.boot_id not in actors:
            witness = trace.witnesses.get(event.boot_id)
            process = witness.process if witness else event.process
            name = _short_name(event, [actor for actor in actors.values() if actor.role == event.role])
            actors[event.boot_id] = Actor(name, event.role, process, event.boot_id, [])
        group: str = getattr(event, "group", "")
        if event.role == "broker":
            _add_client(trace, actors, event)
        elif group and group not in actors[event.boot_id].groups:
            actors[event.boot_id].groups.append(group)
    return list(actors.values())


def _add_client(trace: Trace, actors: dict[str, Actor], event: ev.Event) -> None:
    """A client that only a broker speaks of: its own journal is not here, or does not mention the message."""
    boot_id: str = getattr(event, "client_boot_id", "")
    if not boot_id or boot_id in actors or isinstance(event, ev.Member):
        return
    role = "producer" if isinstance(event, ev.Append) and event.origin in SENT else "consumer"
    if getattr(event, "group", "") == TOOLS_GROUP:
        role = "reader"
    number = 1 + sum(actor.role == role for actor in actors.values())
    witness, group = trace.witnesses.get(boot_id), getattr(event, "group", "")
    process: str = witness.process if witness else getattr(event, "client_id", "") or "unknown"
    actors[boot_id] = Actor(f"{SHORT.get(role, READER)}{number}", role, process, boot_id, [group] if group else [])


def _short_name(event: ev.Event, before: list[Actor]) -> str:
    name: str = getattr(event, "broker_name", "") if event.role == "broker" else ""
    if not name:
        return f"{SHORT.get(event.role, event.role)}{len(before) + 1}"
    starts = sum(actor.name.split("/")[0] == name for actor in before)
    return f"{name}/{starts + 1}" if starts else name
