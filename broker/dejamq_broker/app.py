"""The broker: what it is made of, in what order it starts, and how it ends."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from dejamq_proto import failpoints
from dejamq_proto.clock import Clock, ClocksMs
from dejamq_proto.codes import ConfigError
from dejamq_proto.events import Boot, State
from dejamq_proto.journal import Journal, Level, new_boot_id, open_journal
from dejamq_proto.serving import Server
from dejamq_proto.timings import Timings

from dejamq_broker.config import BrokerConfig
from dejamq_broker.domain import Domain
from dejamq_broker.ha_metadata import MetadataCopy
from dejamq_broker.ha_slave import Follower
from dejamq_broker.long_poll import LongPoll
from dejamq_broker.periodic import Periodic
from dejamq_broker.registrar import Registrar, Registration
from dejamq_broker.rpc_ha import MasterLink
from dejamq_broker.rpc_namesrv import NameServerLink
from dejamq_broker.rpc_services import SERVICES, add_services
from dejamq_broker.site import Site, settle
from dejamq_broker.store import MessageStore, SlaveStore, read_note
from dejamq_broker.store.paths import StorePaths
from dejamq_broker.watched import Watched

log = logging.getLogger(__name__)
LAST_CALLS_MS = 200
Close = Callable[[], Awaitable[None]]


def wall_clock_ms() -> int:
    """Milliseconds since 1970: the clock of stores and expiry, replaced in tests."""
    return time.time_ns() // 1_000_000


class Broker:
    """One broker. ``start`` once, ``close`` as often as you like; afterwards make a new one.

    Everything here belongs to the event loop that called ``start``; the store's three threads are the only
    others, and they reach the loop through ``LongPoll.on_arrival`` alone. What a part needs to end is
    registered as soon as it began, so that a start that fails half way ends exactly what it had begun, in the
    opposite order.

    RocketMQ: BrokerController, without its pools: what a pool does there is one step of the loop here.
    """

    def __init__(self, config: BrokerConfig, *, clock_ms: Callable[[], int] | None = None) -> None:
        """``clock_ms`` takes the place of both clocks."""
        config.validate()
        self.config, self._clock = config, Clock(config.age_clock)
        self._clock_ms = clock_ms or self._clock.wall_ms
        self._clocks = ClocksMs(self._clock_ms, clock_ms or self._clock.age_ms)
        self.boot_id = new_boot_id()
        self.site = Site(
            cluster=config.cluster_name, broker_name=config.broker_name, broker_id=config.broker_id,
            boot_id=self.boot_id,
        )  # fmt: skip
        self._store_config = config.store
        self._directory = Path(config.store_directory).expanduser()
        self._closers: list[tuple[str, Close]] = []
        self._closing: asyncio.Task[None] | None = None
        self._follower: Follower | None = None
        self._journal = Journal(None, role="broker", process="", boot_id=self.boot_id, level=Level.OFF)

    @property
    def address(self) -> str:
        """What clients are told; known after ``start``."""
        return self.site.address

    async def start(self) -> str:
        """Lock and recover the store, serve, register. Returns the bound address; a failed start leaves nothing open.

        Raises ConfigError for an address that cannot be used, StoreError for a store that cannot be opened.
        """
        try:
            return await self._start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Unregister, answer held pulls, finish what runs, flush, unlock. Every step is done even when one fails.

        Once begun it goes on to the end, whether or not the caller waits for it; every later call waits for the
        same end. Raises the first error of a step after all steps were done: the journal then has no ``closed``
        line, and the store's ``abort`` file tells the next start to look closer.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="broker close")
        await asyncio.shield(self._closing)

    async def _start(self) -> str:
        """The order matters: nothing is served before the store is whole, nothing is registered before it is
        served, and ``ready`` comes last, so that a health check never passes too early.
        """
        self._open_journal()
        await self._open_store()
        self._make_domain()
        bound = await self._serve()
        self._start_services()
        await self.watched.start()
        self._on_close("watched", self.watched.close)
        await self._register()
        await self._server.ready()
        self._on_close("readiness", self._drain)
        return bound

    def _on_close(self, name: str, close: Close) -> None:
        self._closers.append((name, close))

    def _open_journal(self) -> None:
        config = self.config
        try:
            self._journal = open_journal(
                config.journal_dir, role="broker", process=f"{config.broker_name}-{config.broker_id}",
                boot_id=self.boot_id, level=config.journal_level, max_bytes=config.journal_max_bytes,
                wall=self._clock.wall_s,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"cannot write a journal in {config.journal_dir}: {error.strerror}") from None
        self._journal.write(State(state="started", reason=f"level={config.journal_level}"))

    async def _open_store(self) -> None:
        """Recovery may read much, so it runs beside the loop; everything after is short."""
        self._long_poll = LongPoll()
        kind = MessageStore if self.site.master else SlaveStore
        opening = asyncio.ensure_future(asyncio.to_thread(
            kind.open, self._directory, self._store_config,
            clock_ms=self._clock_ms, on_arrival=self._long_poll.on_arrival, soon=asyncio.get_running_loop().call_soon,
        ))  # fmt: skip
        try:
            self._store = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on: what it opens must be closed, or `abort` stays behind
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await asyncio.to_thread(opening.result().close)
            raise
        self._on_close("store", self._close_store)
        if failpoints.ARMED:
            armed = failpoints.here()
            self._store.tell_disk(lambda: armed.number(failpoints.DISK))

    def _make_domain(self) -> None:
        """Progress and offsets are registered for closing before the server is, and are therefore flushed after it
        stopped: no commit of a client can come after the last flush.
        """
        self.domain = Domain(self.config, self._store, self._journal, self.site, self._clocks, self._long_poll)
        for name, flush in self.domain.last_flushes():
            self._on_close(name, flush)

    async def _serve(self) -> str:
        """Bind, then learn our own address: with port 0 it is known only now, and nobody else knows it earlier.

        The addresses are settled twice: before, so that a run that comes with the first connection finds a
        store host, and after, because only then the port is known.
        """
        config = self.config
        timings = Timings() if config.metrics_address else None
        self._server = Server(SERVICES, timings)
        self.watched = Watched(self.domain, self._server, timings)
        self.fast = add_services(self._server.grpc, self.domain)
        await settle(self.site, config, config.listen)
        bound = await self._server.start(config.listen)
        self._on_close("server", self._stop_serving)
        await self.fast.start(bound, config.fast_port)
        await settle(self.site, config, bound)
        self._journal.write(Boot(
            broker_name=config.broker_name, broker_id=config.broker_id, address=self.site.store_address,
            clean=self._store.clean_start, log_min=self._store.log_min, log_max=self._store.log_max,
            delay_levels_ms=list(config.store.delay_levels_ms),
        ))  # fmt: skip
        if self._store.promoted:
            self.domain.replication.note_promoted(read_note(StorePaths(self._directory)))
        return bound

    def _start_services(self) -> None:
        """Each service is a Periodic of its own: a step that waits for the disk delays no other."""
        self.domain.fast_failure.start()
        self._on_close("fast failure", self.domain.fast_failure.close)
        offsets = self.domain.offsets
        flushing = self._run_changeable("flush offsets", "flush_consumer_offset_interval_ms", offsets.flush)
        offsets.flush_soon = flushing.poke
        self._run_changeable("flush delay progress", "flush_delay_offset_interval_ms", self.domain.progress.flush)
        self._run_changeable("expire clients", "client_housekeeping_interval_ms", self.domain.clients.expire)
        if self.site.master:
            self._deliver()
        else:
            self._follow()

    def _deliver(self) -> None:
        """What only a master does with the log: deliver what was delayed, end what transactions began."""
        config = self.config
        self._run_periodic("deliver delayed", config.schedule_poll_interval_ms, self.domain.delay.step)
        self._on_close("delays", self.domain.delay.close)
        rounds, ops = self.domain.transaction_rounds, self.domain.transactions.ops
        self._run_periodic("mark transactions", config.transaction_op_batch_interval_ms, ops.flush)
        self._run_periodic("check transactions", config.transaction_check_interval_ms, rounds.step)
        self._on_close("transaction rounds", rounds.close)

    def _follow(self) -> None:
        """A slave copies its master's log and tables, and delivers and ends nothing of its own."""
        config, site, store, domain = self.config, self.site, self._store, self.domain
        assert isinstance(store, SlaveStore), "the broker id says so"

        def dial(address: str) -> MasterLink:
            return MasterLink(address, site, config.ha_housekeeping_interval_ms)

        self._follower = follower = Follower(config, store, self._journal, site, dial)
        metadata = MetadataCopy(domain.tables, store, follower.state, dial, self._clock_ms)
        metadata.on_copied = domain.offsets.flush_soon
        copying = self._run_changeable("copy tables", "slave_sync_interval_ms", metadata.step)
        self._on_close("slave note", metadata.note)
        follower.on_connected = copying.poke
        domain.puller.replicas.master_there = lambda: follower.state.connected
        domain.ha_info = lambda: follower.info() | metadata.info()
        follower.start()
        self._on_close("follower", follower.close)

    def _run_periodic(self, name: str, interval_ms: float, step: Callable[[], Awaitable[None]]) -> Periodic:
        periodic = Periodic(name, interval_ms, step)
        periodic.start()
        self._on_close(name, periodic.close)
        return periodic

    def _run_changeable(self, name: str, setting: str, step: Callable[[], Awaitable[None]]) -> Periodic:
        """The interval is a setting that operators may change while the broker runs."""
        periodic = self._run_periodic(name, getattr(self.config, setting), step)
        self.domain.settings.changeable[setting] = periodic.set_interval
        return periodic

    async def _register(self) -> None:
        config = self.config
        links = [NameServerLink(address, self.site, self.domain.topics, config) for address in config.namesrvs()]
        registrar = Registrar([
            Registration(link, config.register_name_server_period_ms, config.namesrv_reconnect_ms) for link in links
        ])  # fmt: skip
        self._on_close("registrar", registrar.close)
        self.domain.topics.on_change, self.domain.told = registrar.poke, registrar.told
        if self._follower is not None:
            self._follower.look_for_master = registrar.poke
            for link in links:
                link.on_master = self._follower.master_is
        await registrar.start()

    async def _drain(self) -> None:
        """Whoever asks for health is sent elsewhere before anything ends."""
        self.domain.runtime.active = False
        await self._server.drain()

    async def _stop_serving(self) -> None:
        """Answer held pulls, refuse new runs, end the streams after their last answers, then let go of the port."""
        self._long_poll.close()
        self.domain.sender.close()
        self.domain.transactions.close()
        await self.domain.streams.close(self.config.shutdown_grace_ms)
        await self.domain.replication.close(self.config.shutdown_grace_ms)
        await self.fast.close(LAST_CALLS_MS)
        await self._server.stop(LAST_CALLS_MS)

    async def _close_store(self) -> None:
        await asyncio.to_thread(self._store.close)

    async def _close(self) -> None:
        """Undo what was begun, the last one first, and journal that the end was clean only when every step was."""
        errors: list[Exception] = []
        self._journal.write(State(state="closing"))
        while self._closers:
            name, close = self._closers.pop()
            try:
                await close()
            except Exception as error:
                log.error("close_failed step=%s error=%s", name, error)
                errors.append(error)
        if not errors:
            self._journal.write(State(state="closed"))
        self._journal.close()
        if errors:
            raise errors[0]
