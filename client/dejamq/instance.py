"""What every client stands on: its identity, its journal, its routes, its connections, and how they end together."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import metadata
from typing import Any

from dejamq_proto.client_pb2 import ConsumerData, Heartbeat
from dejamq_proto.clock import Clock
from dejamq_proto.codes import ClientClosed, ConfigError, DejamqError, ForkedProcess
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.events import Gap, State
from dejamq_proto.journal import Journal, new_boot_id, open_journal

from dejamq.commands import Commands
from dejamq.config import ClientConfig, parse_addresses
from dejamq.forking import Origin
from dejamq.links import Links
from dejamq.presence import Presence
from dejamq.routes import Routes, TopicRoute
from dejamq.rpc_broker import BrokerLink
from dejamq.rpc_namesrv import NameServerLink
from dejamq.unique_id import local_ip
from dejamq.watchdog import watchdog

log = logging.getLogger("dejamq")


def _version() -> str:
    try:
        return metadata.version("dejamq")
    except metadata.PackageNotFoundError:  # run from its source, not installed
        return ""


VERSION = _version()
"""Told in heartbeats, for operators who look for old clients."""
LAST_WORDS_S = 0.005
"""For gRPC's thread, which tells of cancelled calls within a ms on a quiet machine: told to a loop that has ended, it
is an error with a trace in whatever other loop the process has.
"""
RETIRED_AFTER = 4
"""Refreshes of the routes, 120 s: RocketMQ's clientChannelMaxIdleTimeSeconds."""


class Instance:
    """One started client. Made in a running event loop and owned by it; ``close`` ends all it started.

    RocketMQ: MQClientInstance, but never shared: each producer and each consumer has its own connections and
    its own client id, so that no two consumers of one program can be taken for one member.
    """

    def __init__(self, config: ClientConfig, *, role: str) -> None:
        """``role``, ``producer`` or ``consumer``, names the journal."""
        self.config, self.role = config, role
        self.clock = Clock(config.age_clock)
        ip = config.client_ip or local_ip()
        self.client_id = config.client_id or f"{ip}@{os.getpid()}#{time.time_ns()}"
        self.boot_id = new_boot_id()
        self.journal = self._open_journal()
        self._origin, self._seq = Origin(), 0
        self.started_ms = self.clock.wall_ms()
        timeout_ms = config.mq_client_api_timeout_ms
        self.namesrv = NameServerLink(parse_addresses(config.namesrv), self, timeout_ms=timeout_ms)
        self.routes = Routes(
            self.namesrv,
            refresh_interval_ms=config.poll_name_server_interval_ms,
            default_queue_nums=getattr(config, "default_topic_queue_nums", 4),
        )
        self.presence = Presence(config, links=self._heartbeat_links, heartbeat=self._heartbeat)
        self.presence.on_ids_changed = self._ids_changed
        self.commands = Commands(self.spawn)
        self.presence.on_command = self.commands.received
        self._links = Links(
            self._dial, named=partial(self.routes.addresses, masters_only=False), spawn=self.spawn,
            idle_ms=RETIRED_AFTER * config.poll_name_server_interval_ms,
        )  # fmt: skip
        self._watchdog = watchdog()
        self._closing: asyncio.Task[None] | None = None
        self._beating: set[str] = set()
        self._producer_groups: list[str] = []
        self._consumers: list[Callable[[], ConsumerData]] = []
        self._ids_listeners: dict[str, list[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._fatal: BaseException | None = None
        self.on_fatal: Callable[[BaseException], None] = lambda error: None
        self.closed = False

    # identity

    def next_seq(self) -> int:
        """The number of the next request: with ``boot_id`` its name in every journal."""
        self._seq += 1
        return self._seq

    def caller(self, seq: int = 0) -> Caller:
        """Who asks, for a request; ``seq`` when its number was taken before, to be journalled."""
        return Caller(client_id=self.client_id, boot_id=self.boot_id, seq=seq or self.next_seq())

    def check(self) -> None:
        """Raise ForkedProcess, the fatal failure of a background task, or ClientClosed."""
        if not self._origin.here:
            raise ForkedProcess("this client was made before fork; make a new one in the child process")
        if self._fatal is not None:
            raise self._fatal
        if self.closed:
            raise ClientClosed("this client is closed; make a new one")

    # membership

    def register_producer(self, group: str) -> None:
        """Name the group in heartbeats from now on."""
        self._producer_groups.append(group)

    def register_consumer(self, provider: Callable[[], ConsumerData]) -> None:
        """``provider`` is asked at each heartbeat, so that it tells today's subscriptions."""
        self._consumers.append(provider)

    def on_ids_changed(self, group: str, listener: Callable[[], None]) -> None:
        """Call when a broker says that the group's members changed."""
        self._ids_listeners.setdefault(group, []).append(listener)

    # life

    async def start(self) -> None:
        """Begin the background work. Routes are read and brokers told when topics are asked for."""
        self.journal.write(
            State(state="started", client_id=self.client_id, group=self._group(), reason=f"level={self.journal.level}")
        )
        self.routes.on_change.append(self._route_changed)
        self.spawn(self.routes.run(), "routes")
        self.spawn(self.presence.run(), "presence")
        if self.journal.on:
            self._watchdog.tell(self._did_not_run)

    async def heartbeat(self) -> list[str]:
        """Tell all brokers of the known routes now; addresses of those that did not acknowledge."""
        return await self.presence.beat()

    def link(self, address: str) -> BrokerLink:
        """The one connection to this address.

        Made on first use; closed when no route has named the address for 120 s, and at the end.
        """
        return self._links[address]

    def reconnect(self, address: str, reason: str) -> None:
        """Give the connection to this address up: what waits on it fails, and the next call dials anew.

        For one whose other end may be gone without a word: such a connection would swallow every later call too,
        until the keepalive finds out after 40 s.
        """
        if self._links.give_up(address, reason):
            self.presence.wake()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A background task that ends with this instance; when it fails, every next call of the client raises that.

        A cancelled task is no failure. The name appears in the error that the program sees.
        """
        task = asyncio.get_running_loop().create_task(work, name=f"dejamq-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def fail(self, error: BaseException) -> None:
        """The client cannot go on; only the first failure counts.

        Whoever waits for a send or for a stop is told through ``on_fatal``; nothing is closed here, the program
        does that.
        """
        if self._fatal is None:
            self._fatal = error
            log.error("client_failed client_id=%s reason=%r", self.client_id, error)
            self.on_fatal(error)

    @property
    def fatal(self) -> BaseException | None:
        """Why the client cannot go on; None while it can."""
        return self._fatal

    async def close(self) -> None:
        """Stop background work, leave all brokers, close connections and the journal. May be called twice.

        Once begun it goes on to the end, whether or not the caller waits for it.
        """
        self.closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        while self._tasks:  # a route that arrives meanwhile may start another one
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.wait(tuple(self._tasks))
        self._watchdog.forget(self._did_not_run)
        await self.routes.close()
        await self._leave()
        await self._links.close()
        await self.namesrv.close()
        self.journal.write(State(state="closed", client_id=self.client_id, group=self._group()))
        self.journal.close()
        await asyncio.sleep(LAST_WORDS_S)

    async def _leave(self) -> None:
        """Unregister where this client is known; a broker that is away sees the channel's end instead."""
        leaving = [
            link.unregister(producer_group=producer, consumer_group=consumer)
            for link in self._links.values()
            if link.heartbeats.open
            for producer, consumer in self._memberships()
        ]
        for outcome in await asyncio.gather(*leaving, return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.info("unregister_failed reason=%s", outcome)

    def _memberships(self) -> list[tuple[str, str]]:
        return [(group, "") for group in self._producer_groups] + [("", data().group) for data in self._consumers]

    def _group(self) -> str:
        return next((producer or consumer for producer, consumer in self._memberships()), "")

    def _did_not_run(self, missing_ms: int) -> None:
        self.journal.write(Gap(missing_ms=missing_ms))

    def _open_journal(self) -> Journal:
        config = self.config
        try:
            return open_journal(
                config.journal_dir, role=self.role, process=self.client_id, boot_id=self.boot_id,
                level=config.journal_level, max_bytes=config.journal_max_bytes, wall=self.clock.wall_s,
            )  # fmt: skip
        except OSError as error:
            text = f"no journal can be written in {config.journal_dir} ({error.strerror}); set journal_dir to a folder"
            raise ConfigError(text) from None

    def _dial(self, address: str) -> BrokerLink:
        config = self.config
        return BrokerLink(
            address, self, timeout_ms=config.mq_client_api_timeout_ms,
            progress_timeout_ms=config.consumer_progress_timeout_ms, fast=config.vip_channel_enabled,
        )  # fmt: skip

    # listeners

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(
            caller=self.caller(),
            version=VERSION,
            producer_groups=self._producer_groups,
            consumers=[data() for data in self._consumers],
        )

    def _heartbeat_links(self) -> list[BrokerLink]:
        self._beating = self.routes.addresses(masters_only=not self._consumers)
        return [self.link(address) for address in sorted(self._beating)]

    def _route_changed(self, route: TopicRoute) -> None:
        """Beat at once when a broker appeared; connections to those that no route names any more will be closed."""
        wanted = self.routes.addresses(masters_only=not self._consumers)
        if wanted - self._beating:
            self.presence.wake()
        self._links.retire()

    def _ids_changed(self, group: str) -> None:
        for listener in self._ids_listeners.get(group, ()):
            listener()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, DejamqError) else _unexpected(task.get_name(), error))


def _unexpected(name: str, error: BaseException) -> DejamqError:
    failure = DejamqError(f"the background task {name} failed: {error!r}; close this client and make a new one")
    failure.__cause__ = error
    return failure
