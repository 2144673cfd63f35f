"""One operation: its span and its duration, which are the same length."""

from time import perf_counter, time_ns

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode

from dejamq.telemetry import conventions as names
from dejamq.telemetry.conventions import Attributes, error_type


class Timed:
    """``attributes`` are what metrics take theirs from: the span's own at its start, and what is learnt later."""

    def __init__(self, span: trace.Span, attributes: Attributes, began: tuple[int, float]) -> None:
        self.span, self.attributes = span, attributes
        self._began_ns, self._began_s = began
        self.took_s = 0.0

    def learn(self, attributes: Attributes) -> None:
        """Known only now."""
        self.attributes |= attributes
        self.span.set_attributes(attributes)

    def fail(self, error: BaseException) -> None:
        """It ended with this error."""
        self.learn({names.ERROR_TYPE: error_type(error)})
        self.span.record_exception(error)
        self.span.set_status(Status(StatusCode.ERROR, _text(error)))

    def refuse(self, kind: str) -> None:
        """It ended badly, without an exception."""
        self.learn({names.ERROR_TYPE: kind})
        self.span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self.took_s = perf_counter() - self._began_s
        self.span.end(self._began_ns + int(self.took_s * 1e9))


def now() -> tuple[int, float]:
    """Ns since 1970, and seconds of the clock that durations are measured by."""
    return time_ns(), perf_counter()


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return type(error).__qualname__
