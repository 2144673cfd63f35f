"""One name server: started and stopped by a program or a test."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from dejamq_proto.access.guard import Guard
from dejamq_proto.access.settings import guard_of, warn_if_open
from dejamq_proto.journal.events import State
from dejamq_proto.journal.writer import Journal, new_boot_id, open_journal
from dejamq_proto.serving.metrics import Gather
from dejamq_proto.serving.metrics_out import MetricsOut
from dejamq_proto.serving.server import Server
from dejamq_proto.serving.timings import Timings
from dejamq_proto.serving.tls import TlsDoor
from dejamq_proto.wire.tls import ClientTls

from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.doors.services import NameServerDoors, monotonic_ms
from dejamq_namesrv.kv_config import KvConfig
from dejamq_namesrv.registry import Registry

ANY_CLUSTER = "*"
"""A name server serves several clusters: rules for one of them alone give no right here."""


class NameServer:
    """``await start()`` binds and serves; ``await close()`` ends it, also twice. Knows no other name server.

    RocketMQ: NamesrvController. Nothing but key-value settings survives a restart: brokers notice that their
    presence stream ended and register again at once.
    """

    def __init__(self, config: NamesrvConfig, *, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._config, self._now_ms = config, now_ms
        self._parts = AsyncExitStack()
        self.boot_id = new_boot_id()
        self.address = self.metrics_address = ""

    async def start(self) -> str:
        """Serve on the configured address and return the bound one. Raises ConfigError when it cannot."""
        try:
            return await self._start()
        except BaseException:
            await self._parts.aclose()
            raise

    async def _start(self) -> str:
        config = self._config
        kv = KvConfig(config.directory)
        journal = open_journal(
            config.journal_dir, role="namesrv", process=config.name, boot_id=self.boot_id,
            level=config.journal_level, max_bytes=config.journal_max_bytes, beside=True,
        )  # fmt: skip
        self._parts.callback(_end_journal, journal)
        journal.write(State(state="started", reason=f"level={journal.level}"))
        registry = Registry(config, kv, journal, self._now_ms)
        timings = Timings() if config.metrics_on else None
        guard = guard_of(config, None if config.directory is None else Path(config.directory), ANY_CLUSTER)
        if guard is not None:
            self._parts.push_async_callback(_cancelled, asyncio.create_task(guard.book.follow()))
        warn_if_open(config, config.listen)
        doors = NameServerDoors(registry, ClientTls.of(config))
        server = Server(NameServerDoors.services, timings, TlsDoor.of(config), guard)
        doors.add_to(server)
        server.acceptor.remoting = doors.remoting.open
        self._parts.push_async_callback(server.stop, config.shutdown_grace_ms)
        self._parts.push_async_callback(doors.remoting.close, config.shutdown_grace_ms)
        self._parts.callback(server.stop_listening)
        self.address = await server.start(config.listen)
        self._parts.callback(doors.end_channels)
        self._parts.push_async_callback(_cancelled, asyncio.create_task(self._expire_forever(registry)))
        if timings is not None:
            await self._serve_metrics(registry, timings, guard)
        await server.ready()
        self._parts.push_async_callback(server.drain)
        return self.address

    async def _serve_metrics(self, registry: Registry, timings: Timings, guard: Guard | None) -> None:
        def gather() -> Gather:
            from dejamq_namesrv.metrics import NamesrvMetrics

            return NamesrvMetrics(registry, timings, self._config.name).gather

        out = MetricsOut(self._config, guard, service="dejamq-namesrv", name=self._config.name)
        self._parts.push_async_callback(out.close)
        await out.start(gather)
        self.metrics_address = out.address

    async def close(self) -> None:
        """Running calls get ``shutdown_grace_ms``.

        Brokers' channels are let go first: they would use all of it.
        """
        await self._parts.aclose()

    async def _expire_forever(self, registry: Registry) -> None:
        """RocketMQ: RouteInfoManager.scanNotActiveBroker. Routes leave out silent brokers already before this looks."""
        while True:
            await asyncio.sleep(registry.settings.config.scan_not_active_broker_interval_ms / 1000)
            registry.expire()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _end_journal(journal: Journal) -> None:
    journal.write(State(state="closed"))
    journal.close()
