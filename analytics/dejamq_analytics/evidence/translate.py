"""From folders of logs, traces and stores to journals of the processes that wrote them, which the audit then reads."""

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from dejamq_analytics.evidence import (
    client_log,
    clients,
    deferred,
    deliveries,
    found,
    go_log,
    held,
    lack,
    offset_files,
    polled,
    rounds,
    sends,
    server_logs,
    trace,
    untraced,
)
from dejamq_analytics.evidence.brokers import Brokers
from dejamq_analytics.evidence.client import ClientStart
from dejamq_analytics.evidence.clients import ClientStarts
from dejamq_analytics.evidence.found import Found
from dejamq_analytics.evidence.mark import Mark, PropertyFilters
from dejamq_analytics.evidence.process import BROKER_CHANGES, Process, name_server
from dejamq_analytics.evidence.stored import Records
from dejamq_analytics.evidence.text_lines import LineLayout, Zone, lines_of, raw_lines, zones_of
from dejamq_analytics.evidence.trace import TraceMessage
from dejamq_analytics.sources.journaled import Journaled, journaled
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.sources.pool import each, pool_for

SKEW_MS = 1000
"""Clocks that agree better than this are taken for right."""
LARGE_BYTES = 128 << 20
"""Logs of less are read before another process has begun."""
LATE_TOGETHER = 3
"""One trace message that comes late was slow on its way. So many in a row were not."""


@dataclass(frozen=True)
class Reading:
    """What to read, and how: ``folders`` of any evidence, ``stores`` of brokers, time zones by a part of the path.
    ``journals`` of brokers of ours beside them: these brokers need no evidence."""

    folders: Sequence[str]
    stores: Sequence[str] = ()
    zones: Mapping[str, timedelta] = field(default_factory=dict)
    layout: LineLayout | None = None
    trace_topics: frozenset[str] = frozenset()
    journals: Sequence[str] = ()


@dataclass(frozen=True)
class Evidence:
    """What came of it: a folder of journals, a file that names the ``sources`` of their lines, ``stores`` to be read
    beside them, and in words what was found and what is lacking. ``blind``: deliveries there were cannot be seen.
    ``kinds``: of each role the kinds of evidence that there are of every such process.
    """

    journals: str
    sources: Path
    stores: list[str]
    said: list[str]
    lacking: list[str]
    blind: bool
    kinds: dict[str, set[str]]


class TextLog(NamedTuple):
    """A log, and how its lines tell time; None for a log of Go's client."""

    file: Found
    zone: Zone | None
    layout: LineLayout | None


class _Marks:
    """Marks of all files, by machine."""

    def __init__(self) -> None:
        self.client: dict[str, list[Mark]] = defaultdict(list)
        self.server: dict[str, list[Mark]] = defaultdict(list)
        self.name_servers: dict[str, list[Mark]] = defaultdict(list)
        self.routes: list[Mark] = []
        self.offsets: list[Mark] = []
        self.filters = PropertyFilters()
        self.traces: list[TraceMessage] = []


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's collector would look through millions of objects again and again, of which none can go before the end:
    4 of 10 s of a large translation.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@_no_collection()
def translate(reading: Reading, into: Path) -> Evidence:
    """Write a journal of each process into ``into``. Raises BadInput where there is nothing of any use."""
    files = found.found_in(reading.folders)
    stores = [*dict.fromkeys([*reading.stores, *(str(one.path) for one in files if one.kind == found.STORE)])]
    shown = {str(one.path): one.shown for one in files}
    marks = _Marks()
    zones = zones_of({one.path: one.shown for one in files if one.kind in (found.CLIENT, found.SERVER)}, reading.zones)
    logs = [TextLog(one, zones.get(one.path), reading.layout) for one in files if one.kind in found.LOGS]
    lines = {log.file.path: told for log, told in zip(logs, _lines_of_use(logs), strict=True)}
    read = {
        file.path: _read(file, zones.get(file.path), lines.get(file.path, []), marks)
        for file in files
        if file.kind != found.STORE
    }
    records = Records(marks.filters)  # whose properties the filters of logs and answers look at
    records.read(stores, reading.trace_topics)
    said = [f"{file.shown}: {read.get(file.path) or _told_of_store(file, records)}" for file in files]
    known = journaled(reading.journals)
    every, lost = _processes(marks, records, files, known)
    journals, sources = into / "journals", into / "sources.jsonl"
    journals.mkdir()
    with sources.open("wb") as told:
        for process in every:
            process.write(journals, told)
    if not any(journals.iterdir()) and not known.names:
        raise BadInput(f"nothing that tells of a client or a broker in {', '.join([*reading.folders, *stores])}")
    filled = {shown.get(store, store): bool(records.counted[store]) for store in stores}
    members = lack.told_members(mark for some in marks.server.values() for mark in some)
    logged = {file.host for file in files if file.kind in (found.CLIENT, found.GO)}
    mute = [host for host in logged if not marks.client.get(host)]
    lacking, blind = lack.of(every, filled, lost, members=members, mute=mute, journaled=bool(known.names))
    return Evidence(str(journals), sources, stores, said, lacking, blind, lack.kinds(every))


def _told_of_store(file: Found, records: Records) -> str:
    there = [f"{number} {what}" for what, number in records.counted[str(file.path)].items()]
    return f"{file.kind}, machine {file.host}, {', '.join(there) or 'empty'}"


def _lines_of_use(logs: Sequence[TextLog]) -> list[list[Mark]]:
    """What each log tells. Large ones are read side by side."""
    if len(logs) < 2 or sum(log.file.path.stat().st_size for log in logs) < LARGE_BYTES:
        return [*map(marks_of, logs)]
    with pool_for(len(logs)) as pool:
        return each(pool, marks_of, logs)


@_no_collection()
def marks_of(log: TextLog) -> list[Mark]:
    """What one log tells. That of Go's client tells its zone in each line."""
    file, zone, layout = log
    if zone is None:
        return [*go_log.marks(raw_lines(file.path, go_log.CLUES), file.shown, file.host)]
    reader = client_log if file.kind == found.CLIENT else server_logs
    lines = lines_of(file.path, zone.offset, layout if reader is client_log else None, reader.CLUES)
    return [*reader.marks(lines, file.shown, file.host)]


def _read(file: Found, zone: Zone | None, logged: list[Mark], marks: _Marks) -> str:
    """Its marks, ``logged`` if it is a log; what it is, in words."""
    if file.kind == found.OFFSETS:
        marks.offsets += offset_files.marks(file.path, file.shown, file.host)
        return f"{offset_files.told(file.path)}, machine {file.host}"
    if file.kind in found.LOGS:
        _share(file, logged, marks)
        times = "" if zone is None else f"times {_zone(zone)}, "
        return f"{file.kind}, machine {file.host}, {times}{len(logged)} lines of use"
    if file.kind == found.TRACE:
        marks.traces += (TraceMessage(f"{file.shown}:{number}", "", text) for number, text in raw_lines(file.path))
    elif file.kind == found.POLLED:
        _read_answers(file, marks)
    return f"{file.kind}, machine {file.host}"


def _read_answers(file: Found, marks: _Marks) -> None:
    for answer in polled.read(file.path, file.shown):
        if isinstance(answer, TraceMessage):
            marks.traces.append(answer)
        elif answer.what == "filtered":
            marks.filters.learn([answer])
        else:
            (marks.routes if answer.what == "routed" else marks.offsets).append(answer)


def _share(file: Found, logged: list[Mark], marks: _Marks) -> None:
    if file.kind != found.SERVER:
        marks.client[file.host] += logged
        return
    marks.filters.learn(logged)
    of_name_server = file.path.name.startswith("namesrv")
    for mark in logged:
        there = of_name_server or mark.what in BROKER_CHANGES
        (marks.name_servers if there else marks.server)[file.host].append(mark)


def _zone(zone: Zone) -> str:
    minutes = round(zone.offset.total_seconds() / 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02} ({zone.how})"


def _processes(
    marks: _Marks, records: Records, files: Iterable[Found], known: Journaled
) -> tuple[list[Process], list[untraced.Untraced]]:
    """Every step needs the ones before it: who is who, what each had, what each was given, and what that proves.

    Beside the processes, what they were given and did not trace.

    A broker that has a journal is not among them: all that is known of it stands there.
    """
    every = ClientStarts(known)
    for logged in marks.client.values():
        every.read_log(sorted(logged, key=lambda one: one.at_us))
    every.settle()
    for client in every.by_key.values():
        held.events(client)
    brokers = Brokers(every)
    brokers.learn_names([*marks.routes, *(mark for logged in marks.client.values() for mark in logged)])
    brokers.names.update(known.names)
    _begin(brokers, marks, records, files)
    brokers.settle_members()
    brokers.polled(marks.offsets)
    records.named(_names(brokers, every, records))
    traced = [mark for message in [*records.traces, *marks.traces] for mark in trace.marks(message)]
    given = deliveries.deliver(traced, every, records)
    for client in [*every.by_key.values()]:
        rounds.check(client)
        rounds.check_end(client)
        held.complete(client)
        deliveries.events(client, records)
        client.skew_ms = _skew(client)
        for hold in client.holds:
            brokers.answered(client, hold, hold.start)
        clients.told_by_broker(client)
    brokers.came_late()
    sends.tell(traced, every, brokers, records)
    deferred.delays(records, deferred.Failures(given), brokers)
    deferred.transactions(traced, records, every, brokers)
    deferred.pops(records, brokers)
    brokers.share_kinds({one.queue.broker_name for some in records.by_key.values() for one in some})
    servers = [name_server(host, told, brokers.names) for host, told in marks.name_servers.items()]
    own = {*known.names.values()}
    found = [*every.by_key.values(), *(one for one in brokers.every() if one.name not in own), *servers]
    shown = untraced.Shown(marks.filters, brokers.resets)
    return found, untraced.find(every.by_key.values(), given, records, shown)


def _begin(brokers: Brokers, marks: _Marks, records: Records, files: Iterable[Found]) -> None:
    stores: dict[str, set[str]] = defaultdict(set)
    for file in files:
        if file.kind == found.STORE:
            stores[file.host] |= records.hosts.get(str(file.path), set())
    for host, logged in marks.server.items():
        if logged:
            brokers.begin(host, sorted(logged, key=lambda one: one.at_us), stores[host])


def _names(brokers: Brokers, every: ClientStarts, records: Records) -> dict[str, str]:
    """The name of the broker at each address; where logs tell of one broker only, it is that of the only store. An
    empty store has neither address nor name: reports know it by its folder.
    """
    used = {hold.queue.broker_name for client in every.by_key.values() for hold in client.holds}
    hosts = {host for some in records.hosts.values() for host in some}
    if len(used) == 1 and len(hosts) == 1:
        return {next(iter(hosts)): next(iter(used))} | brokers.names
    return brokers.names


def _skew(client: ClientStart) -> int | None:
    """By how much the client's clock is ahead of the broker's: trace messages have a time of each."""
    marks = (mark for given in client.given for mark in (given.mark, given.ended) if mark is not None)
    times = {(mark.said["born_ms"], mark.said["stored_ms"]) for mark in marks}
    return shift_of((born, stored) for born, stored in times if born and stored)


def shift_of(times: Iterable[tuple[int, int]]) -> int | None:
    """By how many ms a sender's clock is ahead, of messages that left and were stored then; None where nothing shows.

    No message comes before it left, and one may be slow. So a clock that steps meanwhile shows too: by one message from
    the future, or by some in a row that are all late.
    """
    apart = [stored - born for born, stored in sorted(times, key=lambda both: both[1])]
    if not apart:
        return None
    together = min(LATE_TOGETHER, len(apart))
    ahead = -min(apart)
    behind = max(min(apart[at : at + together]) for at in range(len(apart) - together + 1))
    shift = ahead if ahead > behind else -behind
    return shift if abs(shift) > SKEW_MS else None
