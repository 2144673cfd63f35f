"""Metrics of a server, told as its settings ask: served at ``/metrics``, exported by OTLP, both, or not at all."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib import metadata

from dejamq_proto.access.guard import Guard
from dejamq_proto.serving.logs import WatchingConfig
from dejamq_proto.serving.metrics import Gather, MetricsServer, check_library
from dejamq_proto.serving.otlp import OtlpExport

log = logging.getLogger(__name__)


class MetricsOut:
    """``start`` begins, ``close`` ends it, also twice. Owned by the event loop."""

    def __init__(self, config: WatchingConfig, guard: Guard | None, *, service: str, name: str) -> None:
        """``service`` and ``name`` are OTLP's ``service.name`` and ``service.instance.id``."""
        self._config, self._guard = config, guard
        self._resource = {
            "service.name": service, "service.instance.id": name, "service.version": metadata.version("dejamq"),
        }  # fmt: skip
        self._parts = AsyncExitStack()
        self.address = ""
        """Of ``/metrics``."""

    async def start(self, gather: Callable[[], Gather]) -> None:
        """``gather`` is called only if somebody wants metrics. Raises ConfigError when they cannot be told."""
        if not self._config.metrics_on:
            return
        check_library()
        made = gather()
        if self._config.metrics_address:
            server = MetricsServer(made, self._guard)
            self.address = await server.start(self._config.metrics_address)
            self._parts.push_async_callback(server.close)
            log.info("metrics_served address=%s", self.address)
        target = self._config.otlp_target
        if target is not None:
            export = OtlpExport(made, target, self._resource)
            await export.start()
            self._parts.push_async_callback(export.close)

    async def close(self) -> None:
        await self._parts.aclose()
