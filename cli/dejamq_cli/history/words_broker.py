"""What the lines of brokers say."""

from collections.abc import Callable
from typing import Any

from dejamq_proto import events as ev
from dejamq_proto.names import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TRANSACTION_GROUP

from dejamq_cli.history.speech import SENT, Speech, named, queue_text
from dejamq_cli.history.trace import Copy, places_of


class BrokerWords:
    """Sentences by event."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self.sentences: dict[type[ev.Event], Callable[[Any], str]] = {
            ev.Append: self._append, ev.Pull: self._pull, ev.OffSet: self._off_set, ev.OffGet: self._off_get,
            ev.OffIgnored: self._off_ignored,
            ev.Member: self._member, ev.Boot: self._boot,
        }  # fmt: skip

    def _append(self, event: ev.Append) -> str:
        mine = [copy for place in places_of(event) if (copy := self._speech.trace.copies.get(place))]
        return "; ".join(f"stores {named(copy)} {self._purpose(copy, event)}" for copy in mine)

    def _purpose(self, copy: Copy, event: ev.Append) -> str:
        """Where to, and what it is made from."""
        topic = copy.place.topic
        because = "" if copy.origin in SENT else f", {self._speech.made_from(copy)}"
        if topic == SCHEDULE_TOPIC:
            return f"to wait at delay level {copy.place.queue_id + 1}{because}"
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

    def _member(self, event: ev.Member) -> str:
        return f"sees {self._speech.name_of(event.client_boot_id)} leave {event.group} ({event.reason})"

    def _boot(self, event: ev.Boot) -> str:
        return "starts" if event.clean else "starts after a crash"
