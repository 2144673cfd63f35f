"""The base of every client: its identity, its journal, its routes, its connections, and how they end together."""

import asyncio
import itertools
import logging
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

from dejamq_proto.client_pb2 import ConsumerData, Heartbeat
from dejamq_proto.clock import Clock
from dejamq_proto.codes import ClientClosed, ConfigError, DejamqError, ForkedProcess
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.journal.events import Gap, State
from dejamq_proto.journal.writer import Journal, new_boot_id, open_journal
from dejamq_proto.signals import Signal
from dejamq_proto.wire.tls import ClientTls

from dejamq.net.broker import BrokerLink
from dejamq.net.commands import Commands
from dejamq.net.namesrv import NameServerLink
from dejamq.net.presence import Presence
from dejamq.net.routes import Routes, TopicRoute
from dejamq.net.watchdog import watchdog
from dejamq.values.config import ClientConfig, parse_addresses
from dejamq.values.forking import ProcessOrigin
from dejamq.values.unique_id import local_ip

# A client's connections to brokers, from the first call to an address until no route names it any more.


class BrokerLinks(dict[str, BrokerLink]):
    """One connection to each address, made when somebody looks for it. Owned by the event loop."""

    def __init__(
        self, dial: Callable[[str], BrokerLink], *, named: Callable[[], set[str]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object], idle_ms: float,
    ) -> None:  # fmt: skip
        """``named``: what routes name now; a connection is closed when they have not named it for ``idle_ms``."""
        super().__init__()
        self._dial, self._named, self._spawn, self._idle_s = dial, named, spawn, idle_ms / 1000
        self._retiring: set[str] = set()
        self._given_up: set[BrokerLink] = set()

    def __missing__(self, address: str) -> BrokerLink:
        link = self[address] = self._dial(address)
        return link

    def give_up(self, address: str, reason: str) -> bool:
        """Calls that wait on the connection fail, and the next call dials anew. False: there is no connection."""
        link = self.pop(address, None)
        if link is None:
            return False
        link.break_sends(reason)
        self._given_up.add(link)
        self._spawn(self._end(link), f"reconnect-{address}")
        return True

    def retire(self) -> None:
        """Close connections that no route names, if that lasts: a name server may lose a broker for a while.

        Their end makes this client leave there, and members that ask that broker then take its queues.
        """
        for address in self.keys() - self._named() - self._retiring:
            self._retiring.add(address)
            self._spawn(self._retire(address), f"retire-{address}")

    async def close(self) -> None:
        """All of them, those given up included; when nothing that was spawned here runs any more."""
        await asyncio.gather(*(link.close() for link in (*self.values(), *self._given_up)))

    async def _retire(self, address: str) -> None:
        await asyncio.sleep(self._idle_s)
        link = self.get(address)
        if link is not None and address not in self._named():
            await link.close()  # cut off by the end of the client, this is done again there
            if self.get(address) is link:  # not given up meanwhile
                del self[address]
        self._retiring.discard(address)

    async def _end(self, link: BrokerLink) -> None:
        await link.close()  # cut off by the end of the client, this is done again there
        self._given_up.discard(link)


log = logging.getLogger("dejamq")


def _version() -> str:
    try:
        return metadata.version("dejamq")
    except metadata.PackageNotFoundError:  # run from its source, not installed
        return ""


VERSION = _version()
"""Told in heartbeats, for operators who look for old clients."""
_starts = itertools.count()
"""In the last digits of client ids: two starts, at one moment of a clock that was put back, have different ones."""
HURRIED_S = 0.5
"""What a step of an end gets at least: enough for brokers that answer."""
LAST_WORDS_S = 0.005
"""For gRPC's thread, which tells of cancelled calls within a ms on a quiet machine: told to a loop that has ended, it
is an error with a trace in whatever other loop the process has.
"""
MOST_LAST_WORDS = 10
"""Rests of that length at most, while the machine is too busy to wake this thread in time, and so perhaps gRPC's."""
RETIRED_AFTER = 4
"""Refreshes of the routes, 120 s: RocketMQ's clientChannelMaxIdleTimeSeconds."""


@dataclass(frozen=True)
class InstanceView:
    """The connections and the background tasks of an instance, for tests."""

    links: BrokerLinks
    tasks: frozenset[asyncio.Task[None]]


class Instance:
    """One started client. Made in a running event loop and owned by it; ``close`` ends all it started.

    RocketMQ: MQClientInstance, but never shared: each producer and each consumer has its own connections and
    its own client id, so that no two consumers of one program can be taken for one member.
    """

    def __init__(self, config: ClientConfig, *, role: str) -> None:
        """``role``, ``producer`` or ``consumer``, names the journal."""
        self.config, self.role = config, role
        self.clock, self._tls = Clock(config.age_clock), ClientTls.of(config)
        ip = config.client_ip or local_ip()
        began = time.time_ns() // 1_000 * 1_000 + next(_starts) % 1_000
        self.client_id = config.client_id or f"{ip}@{os.getpid()}#{began}"
        self.boot_id = new_boot_id()
        self.journal = self._open_journal()
        self._origin, self._seq = ProcessOrigin(), 0
        self.started_ms = self.clock.wall_ms()
        timeout_ms = config.mq_client_api_timeout_ms
        self.namesrv = NameServerLink(
            parse_addresses(config.namesrv), self, timeout_ms=timeout_ms, tls=self._tls, account=config.account
        )
        self.routes = Routes(
            self.namesrv,
            refresh_interval_ms=config.poll_name_server_interval_ms,
            default_queue_nums=getattr(config, "default_topic_queue_nums", 4),
        )
        self.commands = Commands(self.spawn)
        self.presence = Presence(
            config, links=self._heartbeat_links, heartbeat=self._heartbeat, on_ids_changed=self._ids_changed,
            on_command=self.commands.received,
        )  # fmt: skip
        self._links = BrokerLinks(
            self._dial, named=partial(self.routes.addresses, masters_only=False), spawn=self.spawn,
            idle_ms=RETIRED_AFTER * config.poll_name_server_interval_ms,
        )  # fmt: skip
        self._watchdog, self._loop = watchdog(), asyncio.get_running_loop()
        self._closing: asyncio.Task[None] | None = None
        self._beating: set[str] = set()
        self._producer_groups: list[str] = []
        self._consumers: list[Callable[[], ConsumerData]] = []
        self._ids_listeners: dict[str, list[Callable[[], None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._fatal: BaseException | None = None
        self.on_fatal = Signal[[BaseException]]()
        """Told why the client cannot go on."""
        self.on_left_open = Signal[[]]()
        """Told when the loop ends, with all its tasks, and this is not closed."""
        self.closed = False

    # identity

    def next_seq(self) -> int:
        """The number of the next request: with ``boot_id`` its name in every journal."""
        self._seq += 1
        return self._seq

    def caller(self, seq: int = 0) -> Caller:
        """The caller's identity for a request; ``seq`` when its number was taken before, to be journalled."""
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
        self.spawn(self.routes.run(), "routes").add_done_callback(self._cancelled)
        self.spawn(self.presence.run(), "presence")
        if self.journal.on:
            self._watchdog.tell(self._did_not_run)

    async def heartbeat(self) -> list[str]:
        """Send a heartbeat to all brokers of the known routes now. Gives addresses that did not acknowledge."""
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

        ``on_fatal`` tells tasks that wait for a send or for a stop. Nothing is closed here; the program does that.
        """
        if self._fatal is None:
            self._fatal = error
            log.error("client_failed client_id=%s reason=%r", self.client_id, error)
            self.on_fatal.tell(error)

    @property
    def fatal(self) -> BaseException | None:
        """Why the client cannot go on; None while it can."""
        return self._fatal

    def inspect(self) -> InstanceView:
        """The connections, and the tasks that run now. Only tests call this."""
        return InstanceView(self._links, frozenset(self._tasks))

    async def close(self, timeout_s: float | None = None) -> None:
        """Stop background work, leave all brokers, close connections and the journal. May be called twice.

        Once begun it goes on to the end, whether or not the caller waits for it. Brokers have ``timeout_s`` to answer,
        and half a second at least; None leaves each the time of a call.
        """
        self.closed = True
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(timeout_s))
        await asyncio.shield(self._closing)

    def closed_with_loop(self) -> bool:
        """Whether the event loop has ended, and this client with it: then what is unfinished is told.

        Its tasks and connections went with the loop. There is nobody to wait for, and nothing can be sent any more.
        """
        if not self._loop.is_closed():
            return False
        if not self.closed:
            self.closed = True
            self.on_left_open.tell()
            self._watchdog.forget(self._did_not_run)
            self.journal.close()
        return True

    async def _close(self, timeout_s: float | None) -> None:
        while self._tasks:  # a route that arrives meanwhile may start another one
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.wait(tuple(self._tasks))
        self._watchdog.forget(self._did_not_run)
        await self.routes.close()
        await self._leave(None if timeout_s is None else max(timeout_s, HURRIED_S))
        await self._links.close()
        await self.namesrv.close()
        self.journal.write(State(state="closed", client_id=self.client_id, group=self._group()))
        self.journal.close()
        for _ in range(MOST_LAST_WORDS):
            rested = time.monotonic()
            await asyncio.sleep(LAST_WORDS_S)
            if time.monotonic() - rested < 1.5 * LAST_WORDS_S:
                break

    async def _leave(self, timeout_s: float | None) -> None:
        """Unregister where this client is known; a broker that is away sees the channel's end instead."""
        leaving = [
            link.unregister(producer_group=producer, consumer_group=consumer)
            for link in self._links.values()
            if link.heartbeats.open
            for producer, consumer in self._memberships()
        ]
        try:
            async with asyncio.timeout(timeout_s):
                outcomes = await asyncio.gather(*leaving, return_exceptions=True)
        except TimeoutError:
            log.info("unregister_failed reason=no answer within %.1f s", timeout_s)
            return
        for outcome in outcomes:
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
            tls=self._tls, account=config.account,
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

    def _cancelled(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and not self.closed:
            self.on_left_open.tell()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error if isinstance(error, DejamqError) else _unexpected(task.get_name(), error))


def _unexpected(name: str, error: BaseException) -> DejamqError:
    failure = DejamqError(f"the background task {name} failed: {error!r}; close this client and make a new one")
    failure.__cause__ = error
    return failure
