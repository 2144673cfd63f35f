"""``Telemetry``: what a program gives to its clients."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagate import get_global_textmap
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import TracerProvider

from dejamq.receiving.observer import ObservedClient
from dejamq.receiving.received import ReceivedMessage
from dejamq.telemetry.carrying import Carrier
from dejamq.telemetry.conventions import SCHEMA_URL
from dejamq.telemetry.earlier import EarlierDeliveries
from dejamq.telemetry.instruments import Instruments
from dejamq.telemetry.receiving import ConsumerTelemetry
from dejamq.telemetry.sending import ProducerTelemetry

NAME = "dejamq"


class Telemetry:
    """Spans and metrics of the clients that it is given to: ``Producer("shop", telemetry=Telemetry())``.

    One object serves any number of clients, of any kind and in any thread. It sends nothing itself: the SDK that the
    providers belong to does.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None, child_of_send: bool = True, create_spans: bool = True,
        remembered: int = 10_000,
    ) -> None:  # fmt: skip
        """Providers and propagator are OpenTelemetry's global ones unless given.

        ``child_of_send``: the process span of one message is in the trace of its send, and linked to it; False: only
        linked, as the conventions have it by default. ``create_spans``: each message of a batch has a span of its own.
        ``remembered``: messages whose last delivery is kept, for links from a later one.
        """
        version = metadata.version("dejamq")
        self._tracer = trace.get_tracer(NAME, version, tracer_provider, SCHEMA_URL)
        self._instruments = Instruments(metrics.get_meter(NAME, version, meter_provider, SCHEMA_URL))
        self._carrier = Carrier(get_global_textmap() if propagator is None else propagator)
        self._earlier = EarlierDeliveries(remembered)
        self._child_of_send, self._create_spans = child_of_send, create_spans

    def of_producer(self, who: ObservedClient) -> ProducerTelemetry:
        """For producers, which call it when they are made."""
        return ProducerTelemetry(who, self._tracer, self._instruments, self._carrier, create_spans=self._create_spans)

    def of_consumer(self, who: ObservedClient) -> ConsumerTelemetry:
        """For consumers, which call it when they are made."""
        return ConsumerTelemetry(
            who, self._tracer, self._instruments, self._carrier, self._earlier, child_of_send=self._child_of_send
        )

    @contextmanager
    def process(self, message: ReceivedMessage) -> Iterator[None]:
        """A process span around what a program does with a message that it polled or received.

        A handler of a PushConsumer has one by itself. The span is current inside of the block; an exception ends it as
        failed and is raised.
        """
        who = self._earlier.receiver(message) or ObservedClient(message.group, message._batch.namespace, lambda: "")
        consumer = self.of_consumer(who)
        processing, status = consumer.process([message], batch=False), "success"
        try:
            yield
        except BaseException as error:
            processing.timed.fail(error)
            status = "exception"
            raise
        finally:
            consumer.processed(processing, [message], status)
