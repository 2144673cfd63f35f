"""What each line says of the message, in words."""

from collections.abc import Callable
from typing import Any

import msgspec
from dejamq_proto import events as ev

from dejamq_cli.history.speech import Speech
from dejamq_cli.history.words_broker import BrokerWords
from dejamq_cli.history.words_consumer import ConsumerWords
from dejamq_cli.history.words_producer import ProducerWords

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
