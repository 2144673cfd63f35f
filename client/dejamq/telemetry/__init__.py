"""OpenTelemetry: spans and metrics of clients, by its conventions for messaging and RocketMQ; extra ``otel``.

``Telemetry`` goes to a client's constructor, ``instrument()`` is for all clients made later. Enter at ``telemetry``.
"""

try:
    import opentelemetry.trace as _trace  # noqa: F401  # asked for here, so that its absence is told in one line
except ImportError as error:
    raise ImportError("dejamq.telemetry needs OpenTelemetry: pip install 'dejamq[otel]'") from error

from dejamq.telemetry.instrumentor import DejamqInstrumentor, instrument, uninstrument
from dejamq.telemetry.telemetry import Telemetry

__all__ = ["DejamqInstrumentor", "Telemetry", "instrument", "uninstrument"]
