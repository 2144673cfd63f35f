"""Keeps this broker known to every name server, each on its own: a slow or dead one never delays the others."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from dejamq_proto.codes import DejamqError

from dejamq_broker.base.periodic import Periodic

log = logging.getLogger(__name__)
FIRST_ROUND_S, TOLD_S = 3.0, 1.0
UNREGISTER_MS = 1000.0


class NameServerConnection(Protocol):
    """The part of a name server that a registrar needs.

    ``register`` and ``unregister`` raise DejamqError; ``hold`` lasts as long as the presence stream and calls
    ``on_open`` for each answer on it.
    """

    address: str

    async def register(self) -> None: ...
    async def unregister(self, timeout_ms: float) -> None: ...
    async def hold(self, on_open: Callable[[], None]) -> None: ...
    async def close(self) -> None: ...


class Registration:
    """One name server: registers each period and on change, and holds the presence stream, again whenever it ends."""

    def __init__(self, link: NameServerConnection, period_ms: float, reconnect_ms: float) -> None:
        self.link, self._reconnect = link, reconnect_ms / 1000
        self._periodic = Periodic(f"register at {link.address}", period_ms, self._register)
        self._presence: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._failing = self._registered = False
        self._begun = self._ended = 0
        self._round_ended = asyncio.Event()

    def start(self) -> None:
        """Register now and keep doing so."""
        self._periodic.start()
        self._periodic.poke()
        self._presence = asyncio.create_task(self._stay_present(), name=f"presence at {self.link.address}")

    def poke(self) -> None:
        """Register again now."""
        self._periodic.poke()

    async def told(self) -> None:
        """Until a registration that begins after this call has ended in either way: no older one can come after it."""
        wanted = self._begun + 1
        self._periodic.poke()
        while self._ended < wanted:
            await self._round_ended.wait()

    async def first_try(self) -> None:
        """Until the first registration ended in either way."""
        await self._tried.wait()

    async def close(self) -> None:
        """Unregister, whatever is under way. A name server that does not answer is left to notice by itself.

        The unregister comes before the presence ends. So a name server hears the reason first and forgets this broker
        on purpose, not because a stream broke.
        """
        await self._periodic.cancel()
        if self._registered:
            try:
                await self.link.unregister(UNREGISTER_MS)
            except DejamqError as error:
                log.info("unregister_failed namesrv=%s error=%s", self.link.address, error)
        if self._presence is not None:
            self._presence.cancel()
            await asyncio.wait((self._presence,))
        await self.link.close()

    async def _register(self) -> None:
        """A failure is logged once for each outage, and its end once; the rounds in between are silent."""
        self._begun += 1
        try:
            await self.link.register()
        except DejamqError as error:
            if not self._failing:
                log.warning("register_failed namesrv=%s error=%s", self.link.address, error)
            self._failing = True
        else:
            if self._failing:
                log.info("register_recovered namesrv=%s", self.link.address)
            self._failing, self._registered = False, True
        finally:
            self._tried.set()
            self._ended = self._begun
            ended, self._round_ended = self._round_ended, asyncio.Event()
            ended.set()

    async def _stay_present(self) -> None:
        """A name server that restarted has forgotten everything: register as soon as its stream is open again."""
        await self._tried.wait()
        while True:
            try:
                await self.link.hold(self._periodic.poke)
            except DejamqError as error:
                log.debug("presence_lost namesrv=%s error=%s", self.link.address, error)
            await asyncio.sleep(self._reconnect)


class Registrar:
    """All registrations. ``start`` returns when each name server was tried once, or after three seconds.

    It is made before the tables whose changes it tells of, and until ``start`` there is nobody to tell.

    RocketMQ: BrokerOuterAPI.registerBrokerAll asks all name servers in parallel and waits at most 24 s. A broker here
    does not wait for dead ones at all, because each name server has a task of its own.
    """

    def __init__(self) -> None:
        self._registrations: Sequence[Registration] = ()

    async def start(self, registrations: Sequence[Registration]) -> None:
        """Register everywhere. Returns after the first round, whatever came of it."""
        self._registrations = registrations
        for registration in self._registrations:
            registration.start()
        try:
            async with asyncio.timeout(FIRST_ROUND_S):
                await asyncio.gather(*(registration.first_try() for registration in self._registrations))
        except TimeoutError:
            log.warning("some name servers have not answered yet; registration goes on in the background")

    def poke(self) -> None:
        """The topics changed: register everywhere now."""
        for registration in self._registrations:
            registration.poke()

    async def told(self) -> None:
        """Until every name server knows the present state, or a second has passed: nobody waits for dead name
        servers.
        """
        try:
            async with asyncio.timeout(TOLD_S):
                await asyncio.gather(*(registration.told() for registration in self._registrations))
        except TimeoutError:
            log.info("not every name server was told in time; registration goes on in the background")

    async def close(self) -> None:
        """Unregister everywhere, at most one second each."""
        await asyncio.gather(*(registration.close() for registration in self._registrations))
