"""What a broker handed to a group twice, from the broker's journal alone: for groups whose clients keep no journal.

A client of another project tells nobody what its handler did. The broker knows what it stored, handed out, and heard.
A cause is named where that proves it. Else the cause is ``undetermined``, and ``missing`` says what would tell.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from dejamq_proto.journal import events as ev
from dejamq_proto.journal import lines
from dejamq_proto.journal.readings import RecordPlace, handed_out, stored
from dejamq_proto.names import RETRY_PREFIX

Kind = TypeVar("Kind", bound=ev.Event)
UNDETERMINED = "undetermined"
KINDS = (
    ev.Append, ev.Pull, ev.Pop, ev.Ack, ev.Change, ev.Revive, ev.OffSet, ev.OffGet, ev.MemberEvent, ev.Boot, ev.Fault
)  # fmt: skip
ENDED = frozenset({"close", "expire"})
"""A member that leaves so has said nothing: its process or its connection ended."""
BY_OPERATOR = frozenset({"reset", "clone", "delete"})


class HandedOut(msgspec.Struct, frozen=True):
    """A record left the broker for a client. ``pop_time`` is 0 for one that was pulled."""

    client_id: str
    topic: str
    queue_id: int
    queue_offset: int
    at_us: int
    pop_time: int = 0


class RepeatedHandOut(msgspec.Struct, frozen=True):
    """One message went to the group again, and nobody asked for it.

    ``identity``: I1 the same record, I2 another record with the same message id. ``message_id`` is empty where a tag
    filter took some of the records of an answer: the journal says how many, not which.
    """

    identity: str
    group: str
    broker_name: str
    message_id: str
    first: HandedOut
    second: HandedOut
    cause: str
    why: str
    missing: str = ""
    evidence: tuple[str, ...] = ()


class RepeatVerdict(NamedTuple):
    """Of one repeat. Without a cause it was asked for."""

    cause: str = ""
    why: str = ""
    missing: str = ""
    evidence: tuple[ev.Event, ...] = ()


ASKED_FOR = RepeatVerdict()


class HandOut(NamedTuple):
    """A hand-out, with what the journal says of its record."""

    handed: HandedOut
    place: RecordPlace
    line: ev.Event
    message_id: str
    whole: bool
    """False where a filter took records of this answer."""


def find_repeats(journal_dir: Path, group: str, struck: Sequence[tuple[int, str]] = ()) -> list[RepeatedHandOut]:
    """Every second and later hand-out, in order of time. ``struck``: when an armed failpoint did something, and its
    place. A retry that a consumer asked for, another group, and an operator's reset are no repeats.
    """
    told = JournalLines(list(lines.events(lines.files_in(journal_dir), *KINDS)), group, sorted(struck))
    last: dict[object, HandOut] = {}
    found: list[RepeatedHandOut] = []
    left_of: dict[int, int] = {}
    for given in told.handed_out():
        for identity, key in told.identities(given):
            first = last.get(key)
            if first is None:
                continue
            verdict = told.verdict(first, given)
            if verdict.cause and _counts(given, left_of):
                found.append(RepeatedHandOut(
                    identity, group, given.place.broker_name, given.message_id, first.handed, given.handed,
                    verdict.cause, verdict.why, verdict.missing,
                    tuple(map(_named, (first.line, *verdict.evidence, given.line))),
                ))  # fmt: skip
            break
        last.update((key, given) for _, key in told.identities(given))
    return found


def _counts(given: HandOut, left_of: dict[int, int]) -> bool:
    """Of an answer that a filter thinned out only as many count as it had."""
    if given.whole or not isinstance(given.line, ev.Pull):
        return True
    left = left_of.setdefault(id(given.line), given.line.count)
    left_of[id(given.line)] = left - 1
    return left > 0


def _named(line: ev.Event) -> str:
    return f"{line.process} {line.boot_id} {line.seq} {lines.tag_of(type(line))}"


class JournalLines:
    """The lines of the journals, by what is looked for in them."""

    def __init__(self, told: list[ev.Event], group: str, struck: Sequence[tuple[int, str]]) -> None:
        self._group, self._struck = group, struck
        told.sort(key=lambda line: (line.wall_us, line.boot_id, line.seq))
        self._of: dict[type[ev.Event], list[ev.Event]] = defaultdict(list)
        for line in told:
            self._of[type(line)].append(line)
        self._stored: dict[RecordPlace, tuple[ev.Append, str]] = {
            one.place: (append, one.unique_key) for append in self._all(ev.Append) for one in stored(append)
        }
        self._revived = {
            RecordPlace(line.broker_name, line.target_topic, line.target_queue_id, line.target_offset): line
            for line in self._all(ev.Revive)
        }  # fmt: skip
        asked: list[ev.OffGet | ev.OffSet] = [*self._all(ev.OffGet), *self._all(ev.OffSet)]
        self._shared = {line.topic for line in asked if line.group == group}
        """Topics whose offsets the broker keeps. A group without any is broadcasting: each member has all."""

    def _all(self, kind: type[Kind]) -> list[Kind]:
        return self._of[kind]  # type: ignore[return-value]

    # --- hand-outs

    def handed_out(self) -> list[HandOut]:
        """To the group, in order of time, but for answers that were lost on purpose."""
        lines: list[ev.Pull | ev.Pop] = [line for line in self._all(ev.Pull) if line.count]
        lines += self._all(ev.Pop)
        lines.sort(key=lambda line: (line.wall_us, line.seq))
        lost = {id(line) for line in self._before_strikes(lines, ("pull.", "PULL", "POP", "Receive", "Pull"))}
        return [
            given
            for line in lines
            if line.group == self._group and id(line) not in lost
            for given in self._of_line(line)
        ]

    def _of_line(self, line: ev.Pull | ev.Pop) -> Iterator[HandOut]:
        pop_time = line.pop_time if isinstance(line, ev.Pop) else 0
        places = list(handed_out(line))
        whole = isinstance(line, ev.Pop) or line.count == len(places)
        for place in places:
            _, message_id = self._stored.get(place, (None, ""))
            handed = HandedOut(line.client_id, *place[1:], line.wall_us, pop_time)
            yield HandOut(handed, place, line, message_id if whole else "", whole)

    def identities(self, given: HandOut) -> Iterator[tuple[str, object]]:
        """Strongest first: a hand-out counts once."""
        popped = isinstance(given.line, ev.Pop)
        topic = given.place.topic
        member = "" if popped or topic in self._shared or topic.startswith(RETRY_PREFIX) else given.handed.client_id
        yield "I1", (member, given.place)
        if given.message_id:
            yield "I2", (member, given.message_id)

    def _before_strikes(self, lines: Sequence[Kind], words: Sequence[str]) -> list[Kind]:
        """The last of these lines before each lost answer of such a call."""
        times = [line.wall_us for line in lines]
        at = [
            at_us for at_us, place in self._struck if place.endswith("answer") and any(word in place for word in words)
        ]
        return [lines[number - 1] for at_us in at if (number := bisect_right(times, at_us))]

    # --- causes

    def verdict(self, first: HandOut, second: HandOut) -> RepeatVerdict:
        """Why the second was handed out."""
        if revive := self._revived.get(second.place):
            return self._of_revived(revive, second)
        if first.place != second.place:
            return self._of_copies(first, second)
        if isinstance(second.line, ev.Pop):
            return self._of_popped_again(first, second)
        return self._of_pulled_again(first, second)

    def _of_revived(self, revive: ev.Revive, second: HandOut) -> RepeatVerdict:
        given = f"{revive.topic} {revive.queue_id} {revive.queue_offset}"
        changes = [
            line for line in self._all(ev.Change)
            if line.new_pop_time == revive.pop_time and line.queue_offset == revive.queue_offset
            and line.topic == revive.topic and line.queue_id == revive.queue_id
        ]  # fmt: skip
        if changes and changes[-1].how == "visible":
            return ASKED_FOR
        until_us = (revive.pop_time + revive.invisible_ms) * 1000
        lost = self._struck_between(("ACK_MESSAGE", "Ack"), "request", revive.pop_time * 1000, revive.wall_us)
        if lost:
            return RepeatVerdict(
                "B7", f"an acknowledgement was lost on its way after the pop of {given}, so its time ran out",
                evidence=(revive,),
            )  # fmt: skip
        acks = [
            line for line in self._all(ev.Ack)
            if revive.queue_offset in line.queue_offsets and line.pop_time == revive.pop_time
            and (line.topic, line.queue_id) == (revive.topic, revive.queue_id)
        ]  # fmt: skip
        if acks and acks[0].wall_us <= until_us:
            text = "the acknowledgement came in time, and the message was revived all the same"
            return RepeatVerdict(UNDETERMINED, text, "the full audit: dejamq audit", (acks[0], revive))
        late = f"; its acknowledgement came {(acks[0].wall_us - until_us) // 1000} ms late" if acks else ""
        text = f"nobody acknowledged {given} within {revive.invisible_ms} ms{late}"
        return RepeatVerdict("B6", text, evidence=(*acks[:1], revive))

    def _of_popped_again(self, first: HandOut, second: HandOut) -> RepeatVerdict:
        pop = first.line
        assert isinstance(pop, ev.Pop)
        if second.handed.at_us >= (pop.pop_time + pop.invisible_ms) * 1000:
            return RepeatVerdict("B6", f"nobody acknowledged it within {pop.invisible_ms} ms")
        text = "it was popped again before its time was over"
        return RepeatVerdict(UNDETERMINED, text, "the full audit: dejamq audit")

    def _of_copies(self, first: HandOut, second: HandOut) -> RepeatVerdict:
        """Two records of one message id."""
        if second.place.topic.startswith(RETRY_PREFIX):
            return ASKED_FOR
        appends = [self._stored[place][0] for place in (first.place, second.place) if place in self._stored]
        if len(appends) < 2:
            return RepeatVerdict(
                UNDETERMINED, "the message was stored twice", "the journal of the time when it was stored"
            )
        one, other = both = tuple(sorted(appends, key=lambda line: (line.wall_us, line.seq)))
        if one.origin == other.origin == "tx_final":
            return RepeatVerdict("P7", "its transaction was committed twice", evidence=both)
        if not one.origin == other.origin == "client":
            text = f"it was stored twice, by {one.origin} and by {other.origin}"
            return RepeatVerdict(UNDETERMINED, text, "the full audit: dejamq audit", both)
        sends = [line for line in self._all(ev.Append) if line.origin == "client"]
        if any(line is one for line in self._before_strikes(sends, ("SEND_", "Send", "send."))):
            text = f"the answer to the first send was lost, so {other.client_id or 'the producer'} sent it again"
            return RepeatVerdict("P1", text, evidence=both)
        text = "two sends carried one message id, and the broker answered the first"
        return RepeatVerdict(
            UNDETERMINED, text, "the producer's journal or log: whether it or its program tried again", both
        )

    def _of_pulled_again(self, first: HandOut, second: HandOut) -> RepeatVerdict:
        since, until = first.handed.at_us, second.handed.at_us
        moves = [
            line for line in self._all(ev.OffSet)
            if (line.group, *_queue(line)) == (self._group, *_queue(first.line)) and since <= line.wall_us
        ]  # fmt: skip
        before = [line for line in moves if line.wall_us <= until]
        if any(line.by in BY_OPERATOR for line in before):
            return ASKED_FOR
        offset = first.place.queue_offset
        above = [line for line in before if line.new > offset]
        if above:
            return self._of_kept(above[-1], before, second)
        later = [line for line in moves if line.wall_us > until and line.new > offset]
        return self._of_not_kept(first, second, later)

    def _of_kept(self, kept: ev.OffSet, moves: list[ev.OffSet], second: HandOut) -> RepeatVerdict:
        """The broker had the offset, and the next reader began below it all the same."""
        offset = second.place.queue_offset
        lower = [line for line in moves if line.wall_us > kept.wall_us and line.new <= offset]
        if lower and lower[-1].client_id != kept.client_id:
            text = f"{lower[-1].client_id} committed {lower[-1].new} over {kept.new} of {kept.client_id}"
            return RepeatVerdict("O12", text, evidence=(kept, lower[-1]))
        boots = self._between(ev.Boot, kept.wall_us, second.handed.at_us)
        crashed = [line for line in boots if line.broker_name == second.place.broker_name and not line.clean]
        if crashed:
            text = f"the broker was killed before it wrote the offset {kept.new} of {kept.client_id} down"
            return RepeatVerdict("O3", text, evidence=(kept, crashed[0]))
        text = f"the broker had the offset {kept.new}, and {second.handed.client_id} asked below it"
        return RepeatVerdict(UNDETERMINED, text, "the consumer's log: where it began to read", (kept,))

    def _of_not_kept(self, first: HandOut, second: HandOut, later: list[ev.OffSet]) -> RepeatVerdict:
        """No offset above the message had come when it was handed out again."""
        owner, offset = first.handed.client_id, first.place.queue_offset
        since, until = first.handed.at_us, second.handed.at_us
        if self._struck_between(("UPDATE_CONSUMER_OFFSET", "UpdateOffset"), "request", since, until):
            return RepeatVerdict("O2", f"a commit of the group was lost on its way, and no other came above {offset}")
        left = [
            line for line in self._between(ev.MemberEvent, since, until)
            if (line.group, line.client_id, line.change) == (self._group, owner, "-")
        ]  # fmt: skip
        if left and left[-1].reason in ENDED:
            text = f"{owner} ended ({left[-1].reason}) before an offset above {offset} came from it"
            return RepeatVerdict("O1", text, evidence=(left[-1],))
        if left:
            text = f"{owner} left ({left[-1].reason}) without an offset above {offset}"
            return RepeatVerdict(
                UNDETERMINED, text, "the consumer's log: whether its handler ran when it stopped", (left[-1],)
            )
        told = [line for line in later if line.client_id == owner]
        if told and owner != second.handed.client_id:
            text = f"{second.handed.client_id} began before {owner} had told the offset {told[0].new}"
            return RepeatVerdict("O8", text, evidence=(told[0],))
        text = f"{second.handed.client_id} read it again; {owner} had committed nothing above {offset}"
        return RepeatVerdict(UNDETERMINED, text, "the consumers' logs: who owned the queue when")

    def _between(self, kind: type[Kind], since_us: int, until_us: int) -> list[Kind]:
        lines = self._all(kind)
        times = [line.wall_us for line in lines]
        return lines[bisect_left(times, since_us) : bisect_right(times, until_us)]

    def _struck_between(self, words: Sequence[str], part: str, since_us: int, until_us: int) -> bool:
        return any(
            since_us <= at_us <= until_us and place.endswith(part) and any(word in place for word in words)
            for at_us, place in self._struck
        )  # fmt: skip


def _queue(line: ev.Event) -> tuple[str, str, int]:
    assert isinstance(line, ev.OffSet | ev.Pull | ev.Pop)
    return line.broker_name, line.topic, line.queue_id
