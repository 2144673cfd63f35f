"""What the lines of consumers say."""

from collections.abc import Callable
from typing import Any

from dejamq_proto import events as ev

from dejamq_cli.history.speech import Speech, named, queue_text
from dejamq_cli.history.trace import Delivery, places_of

AGAIN = {"local_retry": ", again in the same process", "suspend_retry": ", again after its pause",
         "direct": ", as an operator asked"}  # fmt: skip
PATHS = {"fallback": " by a send of its own", "local": " to itself", "none": " to nobody"}
DOUBT = {"ok": "", "indefinite": "; whether it was taken is not known"}


class ConsumerWords:
    """Sentences by event."""

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
            f"{verb} {named(self._speech.trace.copies[place])}: delivery {self._speech.numbers[delivery]}"
            for number, place in zip(event.delivery_ids, places_of(event), strict=True)
            if (delivery := Delivery(event.boot_id, number)) in self._speech.numbers
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
