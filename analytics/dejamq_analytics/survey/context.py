"""Lines that are not about single messages: those that rules declare to need are kept."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from dejamq_proto.journal.lines import tag_of
from dejamq_proto.journal.readings import asking_delivery

from dejamq_analytics.rules import declared
from dejamq_analytics.rules.anomalies.common import leaves_out
from dejamq_analytics.rules.history.losses import goes_on_after_a_crash
from dejamq_analytics.rules.history.queues import MARKS, is_settled
from dejamq_analytics.rules.history.replicas import is_promotion
from dejamq_analytics.sources.needs import Condition
from dejamq_analytics.survey.note import LineExtent, LogEnd, Note, Opening
from dejamq_analytics.survey.wire import PICKED, JournalLine


class Way(NamedTuple):
    """A need of a rule, ready to be asked of every line. Each process has lines of its own: times of two can be
    compared only when it is known whose clock jumped.
    """

    number: int
    where: Condition | None
    by: Callable[[JournalLine], Any] | None
    rank: Callable[[JournalLine], Any] | None


def _ways() -> dict[str, list[Way]]:
    found: dict[str, list[Way]] = {}
    for number, need in enumerate(declared.EVERYTHING.declared):
        tag = tag_of(need.event)
        if not (need.of_messages and tag in PICKED):
            getters = [attrgetter(*names) if names else None for names in (need.by, need.rank)]
            found.setdefault(tag, []).append(Way(number, need.where, *getters))
    return found


WAYS = _ways()
SEEN = "SEEN"
"""A line of the survey's own, which says only that a process told of a broker: no rule reads this event."""
Kept = tuple[tuple[Any, ...], bytes, str]


class SurveyContext:
    """One task's lines, without lines about messages."""

    def __init__(self) -> None:
        self._note = Note()
        self._extents: dict[str, LineExtent] = {}
        self._seen: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._best: dict[tuple[Any, ...], Kept] = {}
        self._marks: dict[tuple[str, int], int] = {}
        self._told = set[tuple[Any, ...]]()
        self._filtered = set[tuple[str, str]]()

    def count(self, line: JournalLine) -> None:
        """Every line, of whatever event and group."""
        key = line.boot_id, line.broker_name
        if key not in self._seen:
            seen = {
                "event": SEEN, "role": line.role, "process": line.process, "boot_id": line.boot_id, "seq": line.seq,
                "wall_us": line.wall_us,
            } | ({"broker_name": line.broker_name} if line.broker_name else {})  # fmt: skip
            self._seen[key] = msgspec.json.encode(seen), ""
        known = self._extents.get(line.boot_id)
        if known is not None and line.seq == known.last_seq + 1 and line.event != "CLOCK":
            known.last_seq, known.lines = line.seq, known.lines + 1
            known.first_wall_us = min(known.first_wall_us, line.wall_us)
            known.last_wall_us = max(known.last_wall_us, line.wall_us)
            return
        if known is not None:
            self._note.extents.append(known)
        self._extents[line.boot_id] = LineExtent(
            line.boot_id, line.role, line.process, line.seq, line.seq, line.wall_us, line.wall_us
        )

    def keeps(self, line: JournalLine, text: memoryview, file: str) -> bool:
        """Whether a rule needs the line as it is, here and now. Of some lines one of many is enough, or the one that
        ranks highest; lines of messages are taken elsewhere.
        """
        self._notice(line)
        kept, ranked = False, []
        for way in WAYS.get(line.event, ()):
            if way.where is not None and not way.where(line):
                continue
            if way.by is None:
                kept = True
            elif way.rank is None:
                key = way.number, line.boot_id, way.by(line)
                kept = kept or key not in self._told
                self._told.add(key)
            else:
                ranked.append((way.number, way.by, way.rank))
        if not kept:
            for number, by, rank in ranked:
                self._keep_best((number, line.boot_id, by(line)), rank(line), text, file)
        return kept

    def best(self) -> list[tuple[bytes, str]]:
        """The lines of which only the one that tells most is kept."""
        return [*self._seen.values(), *{(text, file) for _, text, file in self._best.values()}]

    def note(self) -> Note:
        self._note.extents += self._extents.values()
        self._note.filtered = [*self._filtered]
        self._note.marks = [(boot, pq, mark) for (boot, pq), mark in self._marks.items()]
        return self._note

    def _notice(self, line: JournalLine) -> None:
        """Note facts that decide which messages matter."""
        note, event = self._note, line.event
        if event in MARKS:
            if event != "RESULT" or is_settled(line):
                self._mark(line, getattr(line, MARKS[event]))
        elif event == "PQ_OPEN":
            note.openings.append(Opening(line.group, line.broker_name, line.topic, line.queue_id, line.start_offset,
                                         line.source.startswith("local")))  # fmt: skip
        elif event == "PULL" and leaves_out(line):
            self._filtered.add((line.group, line.topic))
        elif event == "SENDBACK":
            note.asked.setdefault(line.boot_id, []).extend(line.delivery_ids)
        elif event == "BOOT" and goes_on_after_a_crash(line):
            note.ends.append(LogEnd(line.broker_name, line.boot_id, line.log_max, line.wall_us))
        elif event == "REPLICA" and is_promotion(line):
            note.ends.append(LogEnd(line.broker_name, line.boot_id, line.log_offset, line.wall_us))
        elif event == "CLOCK":
            note.jumps.append((line.boot_id, line.seq, line.jumped_ms))

    def sent_back(self, line: JournalLine) -> None:
        """An APPEND that names the deliveries that asked for it."""
        for ref in line.origin_refs:
            if (asking := asking_delivery(ref)) is not None:
                self._note.asked.setdefault(asking[0], []).append(asking[1])

    def _mark(self, line: JournalLine, mark: int) -> None:
        key = line.boot_id, line.pq_id
        self._marks[key] = max(self._marks.get(key, -1), mark)

    def _keep_best(self, key: tuple[Any, ...], rank: tuple[Any, ...], text: memoryview, file: str) -> None:
        known = self._best.get(key)
        if known is None or rank > known[0]:
            self._best[key] = rank, bytes(text), file
