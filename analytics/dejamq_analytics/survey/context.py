"""Lines that are not about single messages: all are kept, but of what is said again and again only what tells more."""

from typing import Any

import msgspec
from dejamq_proto.texts import number_of

from dejamq_analytics.survey.note import LineExtent, LogEnd, Note, Opening
from dejamq_analytics.survey.wire import JournalLine

ORDINARY = ("oneway", "sync", "piggyback", "release")
"""By whom an offset is set in the course of things."""
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
        self._handlers = {
            "RESULT": self._result, "PERSIST": self._persist, "OFF_SET": self._offset_set, "PULL": self._pull,
            "HANDOUT": self._nothing, "SEND_END": self._nothing,
        }  # fmt: skip

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
        """Whether the line is kept as it is, here and now."""
        handler = self._handlers.get(line.event)
        if handler is not None:
            return handler(line, text, file)
        self._notice(line)
        return True

    def best(self) -> list[tuple[bytes, str]]:
        """The lines of which only the one that tells most is kept."""
        return [*self._seen.values(), *[(text, file) for _, text, file in self._best.values()]]

    def note(self) -> Note:
        self._note.extents += self._extents.values()
        self._note.marks = [(boot, pq, mark) for (boot, pq), mark in self._marks.items()]
        return self._note

    def _notice(self, line: JournalLine) -> None:
        """Note facts that decide which messages matter."""
        note, event = self._note, line.event
        if event == "PQ_OPEN":
            note.openings.append(Opening(line.group, line.broker_name, line.topic, line.queue_id, line.start_offset,
                                         line.source.startswith("local")))  # fmt: skip
        elif event == "PQ_DROP":
            self._mark(line, line.mem_off)
        elif event == "SENDBACK":
            note.asked.setdefault(line.boot_id, []).extend(line.delivery_ids)
        elif event == "BOOT" and line.log_max > 0 and not line.clean:
            note.ends.append(LogEnd(line.broker_name, line.boot_id, line.log_max, line.wall_us))
        elif event == "REPLICA" and line.change == "promoted":
            note.ends.append(LogEnd(line.broker_name, line.boot_id, line.log_offset, line.wall_us))
        elif event == "CLOCK":
            note.jumps.append((line.boot_id, line.seq, line.jumped_ms))

    def sent_back(self, line: JournalLine) -> None:
        """An APPEND that names the deliveries that asked for it."""
        for ref in line.origin_refs:
            boot, _, text = ref.rpartition(":")
            if boot and (delivery := number_of(text)) is not None:
                self._note.asked.setdefault(boot, []).append(delivery)

    def _mark(self, line: JournalLine, mark: int) -> None:
        key = line.boot_id, line.pq_id
        self._marks[key] = max(self._marks.get(key, -1), mark)

    def _keep_best(self, key: tuple[Any, ...], rank: tuple[Any, ...], text: memoryview, file: str) -> bool:
        known = self._best.get(key)
        if known is None or rank > known[0]:
            self._best[key] = rank, bytes(text), file
        return False

    def _result(self, line: JournalLine, text: memoryview, file: str) -> bool:
        if line.pq_dropped:
            return False
        self._mark(line, line.mem_off)
        return self._keep_best(("RESULT", line.boot_id, line.pq_id), (line.mem_off, line.seq), text, file)

    def _persist(self, line: JournalLine, text: memoryview, file: str) -> bool:
        self._mark(line, line.value)
        key = "PERSIST", line.boot_id, line.pq_id, line.outcome in ("", "sent")
        return self._keep_best(key, (line.value, line.seq), text, file)

    def _offset_set(self, line: JournalLine, text: memoryview, file: str) -> bool:
        if line.new < line.old or line.by not in ORDINARY:
            return True
        key = "OFF_SET", line.boot_id, line.group, line.topic, line.queue_id, line.client_boot_id
        return self._keep_best(key, (line.new, line.wall_us, line.seq), text, file)

    def _pull(self, line: JournalLine, text: memoryview, file: str) -> bool:
        if line.code:
            return True
        if line.count < line.next_offset - line.request_offset and ("PULL", line.group, line.topic) not in self._told:
            self._told.add(("PULL", line.group, line.topic))
            self._note.filtered.append((line.group, line.topic))
            return True
        member = "PULL", line.boot_id, line.group, line.client_boot_id
        new = member not in self._told
        self._told.add(member)
        return new

    def _nothing(self, line: JournalLine, text: memoryview, file: str) -> bool:
        return False
