"""Takes the lines that do not name a message but speak of it: answers, hand-outs, results, commits past its place."""

from collections.abc import Callable

from dejamq_proto.journal import events as ev
from dejamq_proto.journal.lines import begins, decode, event_name

from dejamq_cli.history.trace import Trace, TracedDelivery

Queue = tuple[str, str, int]


class Around:
    """A second reading, when the copies and the deliveries are known. Most lines are passed over undecoded."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._offsets: dict[Queue, list[int]] = {}
        for place in trace.copies:
            self._offsets.setdefault(place[:3], []).append(place.queue_offset)
        self._topics = [b'"topic":"%s"' % topic.encode() for topic in {place.topic for place in trace.copies}]
        self._numbers = [b"%d" % delivery.number for delivery in trace.deliveries]
        self._told: set[tuple[str, int, int, str]] = set()
        self._asked: list[ev.OffGet] = []
        self._wanted: dict[bytes, Callable[[ev.Event], bool]] = {
            b"SEND_RESULT": self._answers, b"RESULT": self._ends, b"PULL": self._hands_out, b"HANDOUT": self._arrives,
            b"OFF_SET": self._moves,
            b"OFF_IGNORED": self._ignores, b"OFF_GET": self._begins, b"PERSIST": self._tells, b"PQ_OPEN": self._owns,
            b"PQ_DROP": self._owns,
        }  # fmt: skip

    def take(self, line: bytes) -> None:
        """Look at one line."""
        wanted = self._wanted.get(event_name(line))
        if wanted is None or not self._may_speak_of_it(line):
            return
        event = decode(line)
        if event is not None and wanted(event):
            self._trace.keep(event)

    def end(self) -> None:
        """Where members began is of interest only for those that got the message."""
        boots = {delivery.boot_id for delivery in self._trace.deliveries}
        for event in self._asked:
            if event.client_boot_id in boots:
                self._trace.keep(event)

    def _may_speak_of_it(self, line: bytes) -> bool:
        """By its bytes alone: most lines of large journals end here."""
        if line.startswith(begins(ev.SendResultEvent)):
            return True
        if not any(topic in line for topic in self._topics):
            return False
        return not line.startswith(begins(ev.Result)) or any(number in line for number in self._numbers)

    def _passed(self, queue: Queue, low: int, high: int) -> bool:
        """Whether a copy lies at ``low`` or behind it, and before ``high``."""
        return any(low <= offset < high for offset in self._offsets.get(queue, ()))

    def _answers(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.SendResultEvent)
        return (event.boot_id, event.request_seq) in self._trace.tries

    def _ends(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.Result)
        return any(TracedDelivery(event.boot_id, number) in self._trace.deliveries for number in event.delivery_ids)

    def _hands_out(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.Pull)
        queue = event.broker_name, event.topic, event.queue_id
        return bool(event.count) and self._passed(queue, event.request_offset, event.next_offset)

    def _arrives(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.Handout)
        return self._passed((event.broker_name, event.topic, event.queue_id), event.first_offset, event.last_offset + 1)

    def _moves(self, event: ev.Event) -> bool:
        """Over a copy, or back before it; every other commit says nothing new."""
        assert isinstance(event, ev.OffSet)
        queue = event.broker_name, event.topic, event.queue_id
        return self._passed(queue, *sorted((event.old, event.new)))

    def _ignores(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.OffIgnored)
        return self._passed((event.broker_name, event.topic, event.queue_id), event.old, event.value)

    def _begins(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.OffGet)
        if any(
            offset >= event.value for offset in self._offsets.get((event.broker_name, event.topic, event.queue_id), ())
        ):
            self._asked.append(event)
        return False

    def _tells(self, event: ev.Event) -> bool:
        """The first time that an owner says it of a copy, and the first time that it fails to."""
        assert isinstance(event, ev.Persist)
        if (event.boot_id, event.pq_id) not in self._trace.queues_of:
            return False
        offsets = self._offsets.get((event.broker_name, event.topic, event.queue_id), ())
        told = {(event.boot_id, event.pq_id, offset, event.outcome) for offset in offsets if offset < event.value}
        news = told - self._told
        self._told |= news
        return bool(news)

    def _owns(self, event: ev.Event) -> bool:
        assert isinstance(event, ev.PqOpen | ev.PqDrop)
        return (event.boot_id, event.pq_id) in self._trace.queues_of
