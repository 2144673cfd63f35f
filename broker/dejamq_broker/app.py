"""The broker: its parts, the order of its start, and its end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from dejamq_proto import failpoints
from dejamq_proto.access.guard import Guard
from dejamq_proto.access.model import User, UserType
from dejamq_proto.access.settings import guard_of, warn_if_open
from dejamq_proto.account import Account
from dejamq_proto.clock import Clock, ClocksMs
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.events import Boot, ReplicaEvent, State
from dejamq_proto.journal.writer import Journal, Level, new_boot_id, open_journal
from dejamq_proto.serving.metrics import Gather
from dejamq_proto.serving.metrics_out import MetricsOut
from dejamq_proto.serving.remoting import RemotingDoor, together
from dejamq_proto.serving.server import Server
from dejamq_proto.serving.timings import Timings
from dejamq_proto.serving.tls import TlsDoor
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import Site, reachable, settle
from dejamq_broker.base.periodic import Periodic
from dejamq_broker.domain import Domain
from dejamq_broker.doors.fast.listener import NO_PORT
from dejamq_broker.doors.namesrv import NameServerOfEither
from dejamq_broker.doors.remoting.namesrv import KnownQueues
from dejamq_broker.doors.services import SERVICES, add_services
from dejamq_broker.doors.v1.replication import MasterLink
from dejamq_broker.operators.message_topics import message_topics
from dejamq_broker.operators.watched import Watched
from dejamq_broker.paths.long_poll import LongPoll
from dejamq_broker.registrar import Registrar, Registration
from dejamq_broker.replication.mastership import Mastership
from dejamq_broker.replication.metadata import MetadataCopy
from dejamq_broker.replication.slave import LogFollower, ReplicationState
from dejamq_broker.replication.slave_progress import HaStatus
from dejamq_broker.store import MessageStore, SlaveStore, read_note
from dejamq_broker.store.files.paths import StorePaths

log = logging.getLogger(__name__)
LAST_CALLS_MS = 200
Close = Callable[[], Awaitable[None]]


def wall_clock_ms() -> int:
    """Milliseconds since 1970: the clock of stores and expiry, replaced in tests."""
    return time.time_ns() // 1_000_000


class Guest(Protocol):
    """The doors of a name server in the broker's process."""

    services: tuple[str, ...]
    remoting: RemotingDoor[Any]

    def add_to(self, server: Any) -> None:
        """Open its doors at this server."""


class Broker:
    """One broker. ``start`` once, ``close`` as often as you like; afterwards make a new one.

    Everything here belongs to the event loop that called ``start``; the store's three threads are the only others, and
    they reach the loop through ``LongPoll.on_arrival`` alone. Each part registers its end as soon as it began. So a
    start that fails half way ends exactly the parts that it had begun, in the opposite order.

    RocketMQ: BrokerController, without its pools: the work of a pool there is one step of the loop here.
    """

    def __init__(
        self, config: BrokerConfig, *, clock_ms: Callable[[], int] | None = None, guest: Guest | None = None,
        mastership: Mastership | None = None,
    ) -> None:  # fmt: skip
        """``clock_ms`` takes the place of both clocks. ``guest`` shares the broker's port, and is its name server.

        ``mastership``: with ``failover_enable``; see ``FailoverBroker``.
        """
        config.validate()
        self._guest, self._namesrvs = guest, config.namesrvs()
        self._tls = ClientTls.of(config)
        self.config, self._clock = config, Clock(config.age_clock)
        self._clock_ms = clock_ms or self._clock.wall_ms
        self._clocks = ClocksMs(self._clock_ms, clock_ms or self._clock.age_ms)
        self.boot_id = new_boot_id()
        self.site = Site(
            cluster=config.cluster_name, broker_name=config.broker_name, broker_id=config.broker_id,
            boot_id=self.boot_id,
        )  # fmt: skip
        self._mastership = mastership
        if mastership is not None:
            self.site.replica, self.site.epoch = mastership.role.replica, mastership.role.epoch
        self._store_config = config.store
        self._directory = Path(config.store_directory).expanduser()
        self._closers: list[tuple[str, Close]] = []
        self._closing: asyncio.Task[None] | None = None
        self._registrar = Registrar()
        self._moving: asyncio.Task[None] | None = None
        self._follower: LogFollower | None = None
        self.guard: Guard | None = None
        self._journal = Journal(None, role="broker", process="", boot_id=self.boot_id, level=Level.OFF)

    @property
    def address(self) -> str:
        """The address that clients are told; known after ``start``."""
        return self.site.address

    @property
    def direct(self) -> str:
        """gRPC's own address behind the public port; known after ``start``."""
        return self._server.direct

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

        Once begun it goes on to the end, whether or not the caller waits for it; every later call waits for the same
        end. Raises the first error of a step after all steps were done. The journal then has no ``closed`` line, and
        the store's ``abort`` file tells the next start to look closer.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="broker close")
        await asyncio.shield(self._closing)

    async def _start(self) -> str:
        """The order matters. Nothing is served before the store is whole, and nothing is registered before it is
        served. ``ready`` comes last, so that a health check never passes too early.
        """
        self._open_journal()
        await self._open_store()
        self._ask_access()
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
                wall=self._clock.wall_s, beside=True,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"cannot write a journal in {config.journal_dir}: {error.strerror}") from None
        self._journal.write(State(state="started", reason=f"level={config.journal_level}"))

    async def _open_store(self) -> None:
        """Recovery may read much, so it runs beside the loop; everything after is short."""
        self._long_poll = LongPoll(self.config.max_held_pulls)
        kind = MessageStore if self.site.master else SlaveStore
        opening = asyncio.ensure_future(asyncio.to_thread(
            kind.open, self._directory, self._store_config,
            clock_ms=self._clock_ms, on_arrival=self._long_poll.on_arrival, soon=asyncio.get_running_loop().call_soon,
            told_percent=partial(failpoints.here().number, failpoints.DISK) if failpoints.ARMED else None,
        ))  # fmt: skip
        try:
            self._store = await asyncio.shield(opening)
        except asyncio.CancelledError:  # the thread goes on: its files must be closed, or `abort` stays behind
            await asyncio.wait((opening,))
            if not opening.cancelled() and opening.exception() is None:
                await asyncio.to_thread(opening.result().close)
            raise
        self._on_close("store", self._close_store)

    def _ask_access(self) -> None:
        """Who may come in is known before anybody can. Raises ConfigError."""
        config = self.config
        self.guard = guard_of(
            config, StorePaths(self._directory).topics.parent, config.cluster_name, message_topics(self._store)
        )
        warn_if_open(config, config.listen)
        if self.guard is not None:
            if self._guest is not None:
                self.guard.book.lend(User(f"inner-{self.boot_id}", token_hex(16), UserType.INNER))
            following = asyncio.create_task(self.guard.book.follow(), name="access")
            self._on_close("access", partial(_cancelled, following))

    def _account(self) -> Account | None:
        """By which this broker shows other servers who it is."""
        return None if self.guard is None else self.guard.account()

    def _make_domain(self) -> None:
        """Progress and offsets are registered for closing before the server is. So they are flushed after it stopped:
        no commit of a client can come after the last flush.
        """
        self.domain = Domain(
            self.config, self._store, self._journal, self.site, self._clocks, self._long_poll,
            on_topics=self._registrar.poke, master_there=self._master_there, mastership=self._mastership,
        )  # fmt: skip
        if isinstance(self._store, SlaveStore):
            self._make_follower(self._store)
        for name, flush in self.domain.last_flushes():
            self._on_close(name, flush)

    def _make_follower(self, store: SlaveStore) -> None:
        """A slave copies its master's log and tables."""
        config, site = self.config, self.site

        def dial(address: str) -> MasterLink:
            return MasterLink(address, site, config.ha_housekeeping_interval_ms, self._tls, self._account())

        self._follower = LogFollower(
            config, store, self._journal, site, dial,
            look_for_master=self._registrar.poke, on_connected=lambda: self._copying.poke(),
        )  # fmt: skip
        tables = self.domain.tables
        self._metadata = MetadataCopy(
            tables.copied, store, self._follower.state, dial, self._clock_ms, tables.offset_flushes.poke
        )
        self._copying = Periodic("copy tables", config.slave_sync_interval_ms, self._metadata.step)

    def _master_there(self) -> bool:
        """Whether this slave's master is there, as far as the slave knows."""
        return self._follower is not None and self._follower.state.connected

    def replication_info(self) -> dict[str, str]:
        """For operators: how it stands with the slaves, or with the master."""
        failover = {} if self._mastership is None else self._mastership.info()
        if self._follower is None:
            return self.domain.paths.replication.info(self._clock_ms()) | failover
        return self._follower.info() | self._metadata.info() | failover

    def following(self) -> ReplicationState | None:
        """How it stands with this slave's master; None at a master."""
        return None if self._follower is None else self._follower.state

    @property
    def tables_copied(self) -> bool:
        """Whether this slave has copied its master's tables since its start."""
        return self._follower is not None and self._metadata.copied_ms > 0

    def note_mastership(self, change: str, reason: str = "") -> None:
        """Journal what becomes of this broker's mastership."""
        site = self.site
        log.warning("mastership_%s broker=%s id=%d epoch=%d", change, site.broker_name, site.broker_id, site.epoch)
        self._journal.write(ReplicaEvent(
            broker_name=site.broker_name, broker_id=site.broker_id, change=change, log_offset=self._store.log_max,
            reason=reason or f"epoch {site.epoch}",
        ))  # fmt: skip

    def ha_status(self) -> HaStatus:
        """As ``replication_info``, for those who count with it."""
        return self.domain.paths.replication.status() if self._follower is None else self._follower.status()

    async def _serve(self) -> str:
        """Bind, then learn our own address: with port 0 it is known only now, and nobody else knows it earlier.

        The addresses are settled twice. The first time is before, so that a run that comes with the first connection
        finds a store host. The second time is after, because only then the port is known.
        """
        config = self.config
        timings = Timings() if config.metrics_on else None
        guest = self._guest
        services = dict.fromkeys((*SERVICES, *(guest.services if guest else ())))  # some are both's
        self._server = Server(tuple(services), timings, TlsDoor.of(config), self.guard)
        self.watched = Watched(
            self._server, self._store, self.domain.measures.rates, self.domain.measures.stats,
            out=MetricsOut(
                config, self.guard, service="dejamq-broker", name=f"{config.broker_name}-{config.broker_id}"
            ),
            metrics=partial(self._metrics, timings),
        )  # fmt: skip
        routes = KnownQueues(
            lambda: self._namesrvs, config.register_broker_timeout_ms, config.register_name_server_period_ms,
            self._account, self._tls,
        )  # fmt: skip
        self._on_close("routes", routes.close)
        self.fast, self.remoting, self._v2 = add_services(
            self._server, self.domain, told=self._registrar.told, replication=self.replication_info,
            ha_status=self.ha_status, routes=routes,
        )  # fmt: skip
        if guest:
            guest.add_to(self._server)
            self.remoting = together(self.remoting, guest.remoting)
        acceptor = self._server.acceptor
        acceptor.remoting = self.remoting.open
        if config.fast_port != NO_PORT:
            acceptor.fast = self.fast.open
        await settle(self.site, config, config.listen)
        self._on_close("move", self._stop_moving)
        for name, close in self._last_of_serving():
            self._on_close(name, close)
        bound = await self._server.start(config.listen, beside=True)
        await self.fast.start(bound, config.fast_port, self._server.direct)
        await settle(self.site, config, bound, self._server.stable_direct)
        self.domain.services.settings.changeable["advertise"] = lambda _: self._move(bound)
        if guest:
            self._namesrvs = [reachable(bound)]
        self._journal.write(Boot(
            broker_name=config.broker_name, broker_id=config.broker_id, address=self.site.store_address,
            clean=self._store.clean_start, log_min=self._store.log_min, log_max=self._store.log_max,
            delay_levels_ms=list(config.store.delay_levels_ms),
        ))  # fmt: skip
        if self._store.promoted:
            self.domain.paths.replication.note_promoted(read_note(StorePaths(self._directory)))
        return bound

    def _move(self, bound: str) -> None:
        """Clients are told other addresses from now on."""
        self._moving = asyncio.create_task(self._settle_again(bound, self._moving))

    async def _settle_again(self, bound: str, before: asyncio.Task[None] | None) -> None:
        """One move after the other, as names may have to be resolved."""
        if before is not None:
            await asyncio.wait((before,))
        await settle(self.site, self.domain.services.settings.config, bound, self._server.stable_direct)
        log.info("advertised address=%s", self.site.address)
        self._registrar.poke()

    async def _stop_moving(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.wait((self._moving,))

    def _metrics(self, timings: Timings | None) -> Gather:
        """The library of metrics is not needed before."""
        assert timings is not None, "calls are timed where metrics are on"
        from dejamq_broker.operators.metrics import BrokerMetrics

        domain, measures = self.domain, self.domain.measures
        return BrokerMetrics(
            self.site, self._store, domain.tables, domain.members.clients, domain.services.settings, measures.counts,
            measures.runtime, timings, self._clock_ms,
        ).gather  # fmt: skip

    def _start_services(self) -> None:
        """Each service is a Periodic of its own: a step that waits for the disk delays no other."""
        config, domain = self.config, self.domain
        domain.fast_failure.start()
        self._on_close("fast failure", domain.fast_failure.close)
        self._run(domain.tables.offset_flushes, "flush_consumer_offset_interval_ms")
        progress = Periodic("flush delay progress", config.flush_delay_offset_interval_ms, domain.tables.progress.flush)
        self._run(progress, "flush_delay_offset_interval_ms")
        tidy = domain.services.timer.tidy if self._follower is None else domain.services.timer.flush
        self._run(Periodic("flush timer progress", config.timer_flush_interval_ms, tidy), "timer_flush_interval_ms")
        expiry = Periodic("expire clients", config.client_housekeeping_interval_ms, domain.members.clients.expire)
        self._run(expiry, "client_housekeeping_interval_ms")
        self._run(Periodic("expire v2 clients", config.client_housekeeping_interval_ms, self._v2.expire))
        if self._follower is None:
            self._deliver()
        else:
            self._follow(self._follower)

    def _deliver(self) -> None:
        """Work that only a master does with the log: deliver delayed messages, end transactions."""
        config, delay = self.config, self.domain.services.delay
        self._run(Periodic("deliver delayed", config.schedule_poll_interval_ms, delay.step))
        self._on_close("delays", delay.close)
        timer = self.domain.services.timer
        self._run(Periodic("deliver timed", config.schedule_poll_interval_ms, timer.step))
        self._on_close("timer", timer.close)
        popping = self.domain.popping
        self._run(Periodic("revive", config.revive_interval_ms, popping.revive))
        self._run(Periodic("keep messages", config.revive_interval_ms, self._v2.renew))
        self._run(Periodic("tidy pops", config.flush_consumer_offset_interval_ms, popping.tidy))
        self._run(Periodic("tidy ids", config.flush_consumer_offset_interval_ms, self.domain.paths.dedup.tidy))
        if self._mastership is not None:
            look_ms = self._mastership.interval_s * 1000
            self._run(Periodic("let read", look_ms, self.domain.paths.replication.look))
        rounds, ops = self.domain.services.transaction_rounds, self.domain.paths.transactions.ops
        marks = Periodic("mark transactions", config.transaction_op_batch_interval_ms, ops.flush)
        self._run(marks)
        checks = Periodic("check transactions", config.transaction_check_interval_ms, rounds.step)
        self._run(checks)
        self._on_close("transaction rounds", rounds.close)

    def _follow(self, follower: LogFollower) -> None:
        """A slave delivers and ends nothing of its own."""
        self._run(self._copying, "slave_sync_interval_ms")
        self._on_close("slave note", self._metadata.note)
        follower.start()
        self._on_close("follower", follower.close)

    def _run(self, periodic: Periodic, setting: str = "") -> None:
        """``setting`` names its interval where operators may change that while the broker runs."""
        periodic.start()
        self._on_close(periodic.name, periodic.close)
        if setting:
            self.domain.services.settings.changeable[setting] = periodic.set_interval

    async def _register(self) -> None:
        config = self.config
        on_master = self._follower.master_is if self._follower is not None else None
        links = [
            NameServerOfEither(
                address, self.site, self.domain.tables.topics, config, on_master, self._account, self._tls
            )
            for address in self._namesrvs
        ]
        self._on_close("registrar", self._registrar.close)
        await self._registrar.start([
            Registration(link, config.register_name_server_period_ms, config.namesrv_reconnect_ms) for link in links
        ])  # fmt: skip

    async def _drain(self) -> None:
        """Clients that ask for health are sent elsewhere before anything ends."""
        self.domain.measures.runtime.active = False
        await self._server.drain()

    def _last_of_serving(self) -> Iterator[tuple[str, Close]]:
        """Let go of the ports, answer held pulls, refuse new runs, end the streams after their last answers.

        What is done first stands last, and a port is let go of whatever becomes of the rest.
        """
        domain, grace_ms = self.domain, self.config.shutdown_grace_ms
        yield "gRPC", partial(self._server.stop, LAST_CALLS_MS)
        yield "fast frames", partial(self.fast.close, LAST_CALLS_MS)
        yield "replication", partial(domain.paths.replication.close, grace_ms)
        yield "streams", partial(domain.streams.close, grace_ms)
        yield "remoting", partial(self.remoting.close, grace_ms)
        yield "new work", self._stop_serving

    async def _stop_serving(self) -> None:
        """Nobody comes in, nobody is held, and new runs are refused."""
        self._server.stop_listening()
        self.fast.stop_listening()
        self._long_poll.close()
        self.domain.paths.sender.close()
        self.domain.paths.transactions.close()
        self.domain.popping.close()

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


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
