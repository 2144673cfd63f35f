"""How a broker is watched from outside: its samples, the health of its services, and its metrics."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from dejamq_proto.metrics import MetricsServer, check_library
from dejamq_proto.serving import Server
from dejamq_proto.timings import Timings

from dejamq_broker import stats, store_rates
from dejamq_broker.periodic import Periodic

if TYPE_CHECKING:
    from dejamq_broker.domain import Domain

log = logging.getLogger(__name__)
SEND = "dejamq.v1.Send"
HEALTH_MS = 1_000


class Watched:
    """Begun when the broker serves, ended before it stops. Owned by the event loop."""

    def __init__(self, domain: "Domain", server: Server, timings: Timings | None) -> None:
        self._domain, self._server, self._timings = domain, server, timings
        self._parts = AsyncExitStack()
        self._writable = True
        self.metrics_address = ""

    async def start(self) -> None:
        """Raises ConfigError when metrics are asked for and cannot be served."""
        if self._timings is not None:
            await self._serve_metrics(self._timings)
        self._repeat("sample rates", store_rates.SAMPLE_MS, self._domain.rates.sample)
        self._repeat("sample statistics", stats.SAMPLE_MS, self._domain.stats.sample)
        health = Periodic("look at health", HEALTH_MS, self.look_at_health)
        health.start()
        self._parts.push_async_callback(health.close)

    async def close(self) -> None:
        """May be called twice."""
        await self._parts.aclose()

    async def look_at_health(self) -> None:
        """While the store takes nothing, sends are not served; pulls go on, and so does the broker as a whole."""
        refusal = self._domain.store.refusal
        if (refusal is None) != self._writable:
            self._writable = refusal is None
            log.warning("writes_%s %s", "accepted" if self._writable else "refused", refusal or "")
        await self._server.set_serving(SEND, self._writable)

    async def _serve_metrics(self, timings: Timings) -> None:
        """The library is asked for only here: a broker without metrics does not need it."""
        check_library()
        from dejamq_broker.metrics import BrokerMetrics

        server = MetricsServer(BrokerMetrics(self._domain, timings).gather)
        self.metrics_address = await server.start(self._domain.config.metrics_address)
        self._parts.push_async_callback(server.close)
        log.info("metrics_served address=%s", self.metrics_address)

    def _repeat(self, name: str, interval_ms: float, step: Callable[[], None]) -> None:
        async def stepped() -> None:
            step()

        periodic = Periodic(name, interval_ms, stepped)
        periodic.start()
        self._parts.push_async_callback(periodic.close)
