"""Journal lines about a message as sentences: of producers, consumers and brokers."""

from collections.abc import Callable
from typing import Any

import msgspec
from dejamq_proto.codes import Code
from dejamq_proto.journal import events as ev
from dejamq_proto.journal.readings import entered, stored
from dejamq_proto.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_GROUP

from dejamq_cli.history.speech import SENT, Speech, named, queue_text
from dejamq_cli.history.trace import Copy, TracedDelivery

MAY_BE_STORED = "; it may be stored all the same"


class ProducerWords:
    """Sentences for lines of producers and for lines about transactions, by event."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.sentences: dict[type[ev.Event], Callable[[Any], str]] = {
            ev.SendTry: self._send_try, ev.SendResultEvent: self._send_result, ev.SendEnd: self._send_end,
            ev.Tx: self._tx, ev.EndTransaction: self._end_transaction, ev.CheckTransaction: self._check_transaction,
        }  # fmt: skip

    def _send_try(self, event: ev.SendTry) -> str:
        number = self._speech.trace.tries[event.boot_id, event.request_seq]
        others = len(event.unique_keys) - 1
        company = f" with {others} other{'s' if others > 1 else ''}" if others else ""
        return f"sends it to {event.broker_name}{company}" + (f", try {number}" if number > 1 else "")

    def _send_result(self, event: ev.SendResultEvent) -> str:
        number = self._speech.trace.tries[event.boot_id, event.request_seq]
        doubt = "" if event.definite else MAY_BE_STORED
        reason = f": {event.reason}" if event.reason else ""
        answer = "is answered: stored" if event.outcome == "ok" else f"{event.outcome.replace('_', ' ')}{reason}{doubt}"
        if event.outcome == "not_ok_status":
            answer = f"is answered: stored, but {_code(event.code)}"
        return f"try {number} {answer}"

    def _send_end(self, event: ev.SendEnd) -> str:
        return f"gives up: {event.reason}" + ("" if event.definite else MAY_BE_STORED)

    def _tx(self, event: ev.Tx) -> str:
        why = f" ({event.reason})" if event.reason else ""
        asked = "answers the check" if event.from_check else "ends the transaction"
        return f"{asked}: {event.state}{why}"

    def _end_transaction(self, event: ev.EndTransaction) -> str:
        why = f" ({event.reason})" if event.reason else ""
        return f"is told {event.state} by {self._speech.name_of(event.client_boot_id)}: {event.outcome}{why}"

    def _check_transaction(self, event: ev.CheckTransaction) -> str:
        asked = (
            f"asks {self._speech.name_of(event.client_id)}"
            if event.client_id
            else "would ask a producer, but none is online,"
        )
        return f"{asked} how the transaction ended, check {event.check_times}"


def _code(number: int) -> str:
    return Code(number).name if number in Code._value2member_map_ else str(number)


AGAIN = {"local_retry": ", again in the same process", "suspend_retry": ", again after its pause",
         "direct": ", as an operator asked"}  # fmt: skip
PATHS = {"fallback": " by a send of its own", "local": " to itself", "none": " to nobody"}
DOUBT = {"ok": "", "indefinite": "; whether it was taken is not known"}


class ConsumerWords:
    """Sentences for lines of consumers, by event."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.sentences: dict[type[ev.Event], Callable[[Any], str]] = {
            ev.Handout: self._handout, ev.Deliver: self._deliver, ev.Result: self._result, ev.Sendback: self._sendback,
            ev.Persist: self._persist, ev.PqOpen: self._pq_open, ev.PqDrop: self._pq_drop,
        }  # fmt: skip

    def _handout(self, event: ev.Handout) -> str:
        range_ = range(event.first_offset, event.last_offset + 1)
        copies = self._speech.copies_in(event.broker_name, event.topic, event.queue_id, range_)
        return f"receives {copies}" + (f" among {event.count} messages" if event.count > 1 else "")

    def _deliver(self, event: ev.Deliver) -> str:
        verb = "polls" if event.kind == "poll" else "handles"
        mine = [
            f"{verb} {named(self._speech.trace.copies[one.place])}: delivery {self._speech.numbers[delivery]}"
            for one in entered(event)
            if (delivery := TracedDelivery(event.boot_id, one.delivery_id)) in self._speech.numbers
        ]
        return "; ".join(mine) + AGAIN.get(event.kind, "")

    def _result(self, event: ev.Result) -> str:
        mine = self._speech.deliveries_of(event)
        status = event.status.replace("_", " ")
        reason = f" ({event.reason})" if event.reason else ""
        lost = (
            "; thrown away, the queue had been given up"
            if event.pq_dropped
            else f"; all before offset {event.mem_off} done"
        )
        return f"delivery {mine} ends: {status}{reason}{lost}"

    def _sendback(self, event: ev.Sendback) -> str:
        mine = self._speech.deliveries_of(event)
        outcome = {"ok": "", "indefinite": "; whether it was taken is not known"}.get(
            event.outcome, f"; {event.outcome}"
        )
        why = f" ({event.reason})" if event.reason else ""
        return f"gives it back{PATHS.get(event.path, '')} after delivery {mine}{outcome}{why}"

    def _persist(self, event: ev.Persist) -> str:
        failed = "" if event.outcome == "sent" else f": {event.outcome}"
        done = f"all before offset {event.value} done in {queue_text(event)}"
        return f"tells {event.broker_name}: {done} ({event.reason}){failed}"

    def _pq_open(self, event: ev.PqOpen) -> str:
        return f"takes {queue_text(event)} from offset {event.start_offset} on ({event.source})"

    def _pq_drop(self, event: ev.PqDrop) -> str:
        running = f", {event.in_flight} handlers running" if event.in_flight else ""
        return f"gives up {queue_text(event)}, all before offset {event.mem_off} done{running} ({event.reason})"


class BrokerWords:
    """Sentences for lines of brokers, by event."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.sentences: dict[type[ev.Event], Callable[[Any], str]] = {
            ev.Append: self._append, ev.Pull: self._pull, ev.OffSet: self._off_set, ev.OffGet: self._off_get,
            ev.OffIgnored: self._off_ignored,
            ev.MemberEvent: self._member, ev.Boot: self._boot,
        }  # fmt: skip

    def _append(self, event: ev.Append) -> str:
        mine = [copy for one in stored(event) if (copy := self._speech.trace.copies.get(one.place))]
        return "; ".join(f"stores {named(copy)} {self._purpose(copy, event)}" for copy in mine)

    def _purpose(self, copy: Copy, event: ev.Append) -> str:
        """Where to, and what it is made from."""
        topic = copy.place.topic
        because = "" if copy.origin in SENT else f", {self._speech.made_from(copy)}"
        if topic == SCHEDULE_TOPIC:
            return f"to wait at delay level {copy.place.queue_id + 1}{because}"
        if topic == TIMER_TOPIC:
            return f"to wait for its time{because}"
        if topic == HALF_TOPIC:
            return f"as a half message, hidden until its transaction ends{because}"
        if topic.startswith(DLQ_PREFIX):
            return f"as a dead letter of {topic.removeprefix(DLQ_PREFIX)}{because}"
        if topic.startswith(RETRY_PREFIX):
            return f"for another try of {topic.removeprefix(RETRY_PREFIX)}{because}"
        return f"in {queue_text(copy.place)} at offset {copy.place.queue_offset}{because}"

    def _pull(self, event: ev.Pull) -> str:
        range_ = range(event.request_offset, event.next_offset)
        copies = self._speech.copies_in(event.broker_name, event.topic, event.queue_id, range_)
        company = f" among {event.count} messages" if event.count > 1 else ""
        return f"hands {copies} to {self._speech.name_of(event.client_boot_id)}{company}"

    def _off_set(self, event: ev.OffSet) -> str:
        low, high = sorted((event.old, event.new))
        copies = self._speech.copies_in(event.broker_name, event.topic, event.queue_id, range(low, high))
        who = f" for {self._speech.name_of(event.client_boot_id)}" if event.client_boot_id else ""
        if event.group == TRANSACTION_GROUP:
            return f"need not look at {copies} again"
        where = f"{event.old if event.old >= 0 else 'none'} → {event.new}, {event.by}"
        if event.new > event.old:
            return f"commits {event.group} past {copies}{who} ({where})"
        return f"moves {event.group} back before {copies}{who} ({where})"

    def _off_get(self, event: ev.OffGet) -> str:
        who, queue = self._speech.name_of(event.client_boot_id), f"{event.topic}:{event.queue_id}"
        if event.value < 0:
            return f"tells {who} that {event.group} has no offset of {queue}"
        return f"tells {who} to begin {queue} at offset {event.value} ({event.why})"

    def _off_ignored(self, event: ev.OffIgnored) -> str:
        copies = self._speech.copies_in(event.broker_name, event.topic, event.queue_id, range(event.value))
        who = self._speech.name_of(event.client_boot_id)
        return f"ignores a commit of {event.group} past {copies} by {who} ({event.value}, {event.why})"

    def _member(self, event: ev.MemberEvent) -> str:
        return f"sees {self._speech.name_of(event.client_boot_id)} leave {event.group} ({event.reason})"

    def _boot(self, event: ev.Boot) -> str:
        return "starts" if event.clean else "starts after a crash"


Sentences = dict[type[ev.Event], Callable[[Any], str]]
ENVELOPE = frozenset(ev.Event.__struct_fields__)


class Words:
    """Speaks of copies, clients and deliveries by the short names that the story gives them."""

    def __init__(self, speech: Speech) -> None:
        own: Sentences = {ev.State: _state, ev.Gap: _gap, ev.Fault: _fault}
        parts = ProducerWords(speech), BrokerWords(speech), ConsumerWords(speech)
        self._sentences = own | {event: say for part in parts for event, say in part.sentences.items()}

    def say(self, event: ev.Event) -> str:
        """One sentence without an end. An event without words of its own shows its fields."""
        return self._sentences.get(type(event), _plainly)(event)


def _state(event: ev.State) -> str:
    text = {"started": "starts", "closing": "begins to end", "closed": "has ended"}.get(event.state, event.state)
    return text if event.state == "started" or not event.reason else f"{text} ({event.reason})"


def _gap(event: ev.Gap) -> str:
    return f"did not run for {event.missing_ms} ms"


def _fault(event: ev.Fault) -> str:
    return f"{event.kind} of {event.target}: {event.phase}"


def _plainly(event: ev.Event) -> str:
    fields = msgspec.structs.asdict(event)
    told = [f"{name}={value}" for name, value in fields.items() if name not in ENVELOPE and value not in ("", [], 0)]
    return f"{event.__struct_config__.tag} {' '.join(told)}"
