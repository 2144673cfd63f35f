"""Metrics of clients, under the names of the conventions."""

from opentelemetry.metrics import Meter

from dejamq.telemetry import conventions as names
from dejamq.telemetry.conventions import Attributes, only

BOUNDS_S = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
OF_A_COUNTER = (
    names.SYSTEM, names.OPERATION_NAME, names.DESTINATION, names.GROUP, names.ERROR_TYPE, names.SERVER_ADDRESS,
    names.SERVER_PORT,
)  # fmt: skip


class Instruments:
    """Attributes are those of the operation's span; each metric takes the few that the conventions name."""

    def __init__(self, meter: Meter) -> None:
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", "{message}", "Messages that producers tried to send to a broker."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were delivered to the application."
        )
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "Duration of operations of producers and consumers.",
            explicit_bucket_boundaries_advisory=BOUNDS_S,
        )  # fmt: skip
        self._processing = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of handlers.", explicit_bucket_boundaries_advisory=BOUNDS_S
        )

    def sent(self, count: int, attributes: Attributes) -> None:
        """So many messages, whatever became of them."""
        self._sent.add(count, only(attributes, *OF_A_COUNTER))

    def consumed(self, count: int, attributes: Attributes) -> None:
        """So many messages, once a delivery."""
        self._consumed.add(count, only(attributes, *OF_A_COUNTER))

    def operation(self, took_s: float, attributes: Attributes) -> None:
        """A send, a receive or a settlement."""
        self._operations.record(took_s, only(attributes, names.OPERATION_TYPE, *OF_A_COUNTER))

    def processed(self, took_s: float, attributes: Attributes) -> None:
        """A call of a handler."""
        self._processing.record(took_s, only(attributes, *OF_A_COUNTER))
