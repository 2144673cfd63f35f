"""How a broker is watched from outside: its samples, the health of its services, and its metrics."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from dejamq_proto.serving.metrics import Gather
from dejamq_proto.serving.metrics_out import MetricsOut
from dejamq_proto.serving.server import Server

from dejamq_broker.base.periodic import Periodic
from dejamq_broker.operators import stats, store_rates
from dejamq_broker.store import MessageStore

log = logging.getLogger(__name__)
SEND = "dejamq.v1.Send"
HEALTH_MS = 1_000


class Watched:
    """Begun when the broker serves, ended before it stops. Owned by the event loop."""

    def __init__(
        self, server: Server, store: MessageStore, rates: store_rates.StoreRates, counted: stats.Stats, *,
        out: MetricsOut, metrics: Callable[[], Gather],
    ) -> None:  # fmt: skip
        """``metrics`` is called if ``out`` tells any; else the library is not needed."""
        self._server, self._store, self._rates, self._stats = server, store, rates, counted
        self._out, self._metrics = out, metrics
        self._parts = AsyncExitStack()
        self._writable = True

    @property
    def metrics_address(self) -> str:
        """Of ``/metrics``; empty where it is not served."""
        return self._out.address

    async def start(self) -> None:
        """Raises ConfigError when metrics are asked for and cannot be served."""
        self._parts.push_async_callback(self._out.close)
        await self._out.start(self._metrics)
        self._repeat("sample rates", store_rates.SAMPLE_MS, self._rates.sample)
        self._repeat("sample statistics", stats.SAMPLE_MS, self._stats.sample)
        health = Periodic("look at health", HEALTH_MS, self.look_at_health)
        health.start()
        self._parts.push_async_callback(health.close)

    async def close(self) -> None:
        """May be called twice."""
        await self._parts.aclose()

    async def look_at_health(self) -> None:
        """While the store takes nothing, sends are not served; pulls go on, and so does the broker as a whole."""
        refusal = self._store.refusal
        if (refusal is None) != self._writable:
            self._writable = refusal is None
            log.warning("writes_%s %s", "accepted" if self._writable else "refused", refusal or "")
        await self._server.set_serving(SEND, self._writable)

    def _repeat(self, name: str, interval_ms: float, step: Callable[[], None]) -> None:
        async def stepped() -> None:
            step()

        periodic = Periodic(name, interval_ms, stepped)
        periodic.start()
        self._parts.push_async_callback(periodic.close)
