"""Telemetry for all clients of a program at once, by a call or by ``opentelemetry-instrument``."""

from collections.abc import Collection
from typing import Any

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from dejamq.receiving.observer import observe_all
from dejamq.telemetry.telemetry import Telemetry


def instrument(
    *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None, **choices: Any
) -> Telemetry:
    """Watch every client that is made from now on and is given no ``telemetry`` of its own.

    Arguments are those of ``Telemetry``, which it returns.
    """
    telemetry = Telemetry(tracer_provider=tracer_provider, meter_provider=meter_provider, **choices)
    observe_all(telemetry)
    return telemetry


def uninstrument() -> None:
    """Clients that are made from now on are watched by what they are given only."""
    observe_all(None)


class DejamqInstrumentor:
    """What ``opentelemetry-instrument`` looks for (entry point ``opentelemetry_instrumentor``)."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """dejamq itself, which is there."""
        return ()

    def instrument(self, **given: Any) -> None:
        """As the function; OpenTelemetry's own arguments that mean nothing here are left out."""
        instrument(tracer_provider=given.get("tracer_provider"), meter_provider=given.get("meter_provider"))

    def uninstrument(self, **given: Any) -> None:
        """As the function."""
        uninstrument()
