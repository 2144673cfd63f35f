"""The context of a send in the properties of its messages: W3C ``traceparent`` and ``tracestate``, or what the
program's propagator writes.
"""

from collections.abc import Mapping

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import TextMapPropagator

from dejamq.values.message import Message


class Carrier:
    """Writes into messages that are sent, reads from those received."""

    def __init__(self, propagator: TextMapPropagator) -> None:
        self._propagator = propagator

    def with_context(self, message: Message, span: trace.Span) -> Message:
        """The same message, id and all, with the span's context and the baggage that is current."""
        carried: dict[str, str] = {}
        self._propagator.inject(carried, trace.set_span_in_context(span))
        carried = {name: text for name, text in carried.items() if text}  # a record keeps no empty properties
        return msgspec.structs.replace(message, properties={**message.properties, **carried}) if carried else message

    def context(self, properties: Mapping[str, str]) -> Context:
        """What the properties carry, and nothing of the context that is current."""
        return self._propagator.extract(properties, Context())

    def created_by(self, properties: Mapping[str, str]) -> trace.SpanContext | None:
        """The span that the message was made in, if it says so."""
        if not properties:
            return None
        found = trace.get_current_span(self.context(properties)).get_span_context()
        return found if found.is_valid else None
