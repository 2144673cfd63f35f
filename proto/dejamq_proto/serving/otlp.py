"""Metrics of a server by OTLP over gRPC, at an interval; the families are those that ``/metrics`` would show.

They are gathered in the loop that owns them and sent beside it. OpenTelemetry is imported by servers that are told a
target, and not before. Source of the settings: RocketMQ ``metricsExporterType=OTLP_GRPC``.
"""

import asyncio
import importlib.util
import logging
from collections.abc import Mapping

from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.metrics import Gather
from dejamq_proto.serving.otlp_target import OtlpTarget

log = logging.getLogger(__name__)


class OtlpExport:
    """``start`` begins, ``close`` tells the last numbers and ends. Owned by the event loop.

    A target that does not answer is logged once and asked again at the next interval; nothing is kept for it, as the
    next numbers say the same and more.
    """

    def __init__(self, gather: Gather, target: OtlpTarget, resource: Mapping[str, str]) -> None:
        """``resource`` says which server this is (``service.name`` …). Raises ConfigError without OpenTelemetry."""
        check_otlp_library()
        from dejamq_proto.serving.otlp_metrics import Converter, Exporter

        self._gather, self._target = gather, target
        self._convert, self._exporter = Converter(resource), Exporter(target)
        self._task: asyncio.Task[None] | None = None
        self._failing = self._waiting = False

    async def start(self) -> None:
        """Export at each interval, the first time after one."""
        self._task = asyncio.create_task(self._run(), name="dejamq-otlp")
        log.info("metrics_exported target=%s interval_ms=%d", self._target.address, self._target.interval_ms)

    async def close(self) -> None:
        """Waits at most one time-out. May be called twice."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait((task,))
        try:
            if not (self._failing or self._waiting):
                await self._export()
        finally:
            self._exporter.shutdown()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._target.interval_ms / 1000)
            await self._export()

    async def _export(self) -> None:
        try:
            families = [metric async for metric in self._gather()]
            self._waiting = True  # also when it is cancelled: the thread goes on
            stored = await asyncio.to_thread(lambda: self._exporter.send(self._convert.data(families)))
            self._waiting = False
        except Exception:
            log.exception("otlp_export_broke target=%s", self._target.address)
            stored = self._waiting = False
        if stored is self._failing:
            self._failing = not stored
            text = "otlp_export_failed" if self._failing else "otlp_export_works"
            log.log(logging.WARNING if self._failing else logging.INFO, "%s target=%s", text, self._target.address)


def check_otlp_library() -> None:
    """Raise ConfigError where metrics cannot be exported."""
    try:
        found = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.grpc") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        text = "metrics by OTLP need OpenTelemetry: pip install 'dejamq[broker,otel]', or leave metrics_otlp_target out"
        raise ConfigError(text)
