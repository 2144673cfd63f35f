"""A broker whose role may change while its process runs: with ``failover_enable`` name servers say who is master.

A change of role is a clean end and a new start on the same store and the same address, as an operator would do it by
hand. So everything that holds for a promotion by hand holds here too.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from dejamq_proto.access.settings import guard_of
from dejamq_proto.account import Account
from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.wire.tls import ClientTls

from dejamq_broker.app import Broker, Guest
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.doors.v1.mastership import NameServerGranter
from dejamq_broker.replication.mastership import FILE_NAME, Mastership, RoleFile, boot_clock_s, place_of
from dejamq_broker.replication.slave import ReplicationState
from dejamq_broker.store.files.directory_lock import DirectoryLock
from dejamq_broker.store.files.errors import StoreError
from dejamq_broker.store.files.paths import StorePaths

log = logging.getLogger(__name__)
NO_ID = "give this broker an id above 0"
STARTS = 5
"""So often a start in the new role is tried."""


class FailoverBroker:
    """As ``Broker``: ``start`` once, ``close`` as often as you like. Belongs to the event loop of ``start``."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises ConfigError."""
        config.validate()
        self.config = config
        self.broker: Broker | None = None
        """In its present role; None between two."""
        self.address = ""
        """The address that clients are told; known after ``start``."""
        self.ended: asyncio.Future[None] | None = None
        """Done, with its error, when this broker could not go on by itself; made by ``start``."""
        self._listen = config.listen
        self._tasks: list[asyncio.Task[None]] = []
        self._held = False
        self._judged: list[NameServerGranter] = []

    @property
    def mastership(self) -> Mastership:
        """The right to be master; there after ``start``."""
        return self._mastership

    async def start(self) -> str:
        """A master serves when enough name servers have made it so, a slave at once. Returns the bound address.

        Raises as ``Broker.start``, and DejamqError where the store's role cannot be read or written.
        """
        self.ended = asyncio.get_running_loop().create_future()
        directory = StorePaths(self.config.store_directory).root.expanduser()
        file = RoleFile(directory)
        role = file.read(self.config.broker_id).served_by(token_hex(8), _own_place(directory))
        self._mastership = Mastership(role, file, self._judges(directory), self.config.failover_lease_ms)
        if role.broker_id != self.config.broker_id:
            log.warning("failover_role id=%d configured=%d", role.broker_id, self.config.broker_id)
        try:
            if role.master:
                await self._await_mastership()
            self._renewing = self._begin(self._renew_forever(), "renew mastership")  # recovery may outlast a lease
            await self._start_life()
        except BaseException:
            await self.close()
            raise
        self._begin(self._watch(), "watch mastership")
        return self._listen

    async def close(self) -> None:
        """As ``Broker.close``. The lease is left to run out: nobody takes over because of a short restart."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self.broker is not None:
            await self.broker.close()
        for judge in self._judged:
            await judge.close()
        if self.ended is not None and self.ended.done():
            self.ended.exception()  # whoever waits has it; nobody has to

    def _judges(self, directory: Path) -> list[NameServerGranter]:
        config, tls = self.config, ClientTls.of(self.config)
        guard = guard_of(config, StorePaths(directory).topics.parent, config.cluster_name)

        def account() -> Account | None:
            now = self.broker.guard if self.broker is not None and self.broker.guard is not None else guard
            return None if now is None else now.account()

        self._judged = [
            NameServerGranter(address, config.cluster_name, config.broker_name, account, tls)
            for address in config.namesrvs()
        ]
        return self._judged

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        return task

    # One life of the broker.

    async def _start_life(self) -> None:
        """Start it in its present role, at the address of its earlier lives."""
        mastership = self._mastership
        config = replace(self.config, broker_id=mastership.role.broker_id, listen=self._listen)
        broker = Broker(config, mastership=mastership)
        self._listen = await broker.start()
        self.broker, self.address = broker, broker.address

    async def _change_life(self, change: str, reason: str) -> None:
        """End it in its old role, start it in the new one. Raises what the last start raised."""
        if self.broker is not None:
            self.broker.note_mastership(change, reason)
            ending, self.broker = self.broker, None
            with suppress(DejamqError, OSError):  # logged; the store is closed all the same
                await ending.close()
        for tried in range(1, STARTS + 1):
            try:
                await self._start_life()
                return
            except (DejamqError, OSError) as error:
                log.error("failover_start_failed try=%d of=%d error=%s", tried, STARTS, error)
                if tried == STARTS:
                    raise
                await asyncio.sleep(self._mastership.interval_s)

    # Who is master.

    async def _await_mastership(self) -> None:
        """Until this replica is master, or knows that another one is and what id it has itself now.

        Raises ConfigError where it can be neither.
        """
        mastership, told = self._mastership, ""
        while not (await self._is_master()):
            if (by := mastership.superseded_by) is not None:
                if not await mastership.step_down(by):
                    raise ConfigError(f"another store is master since epoch {by.confirmed_epoch}: {NO_ID}")
                log.warning("mastership_gone id=%d epoch=%d", mastership.role.broker_id, by.confirmed_epoch)
                return
            reasons = sorted({each.reason for each in mastership.answers if each.reason})
            if (why := "; ".join(reasons) or "too few name servers answer") != told:
                log.warning("mastership_awaited broker=%s reason=%s", self.config.broker_name, why)
                told = why
            await asyncio.sleep(mastership.interval_s)

    async def _is_master(self) -> bool:
        """Renew what it has, or take a new epoch where it has none in use."""
        mastership = self._mastership
        if mastership.role.epoch and await mastership.renew():
            return True
        if not mastership.role.epoch:
            await mastership.look("")
        if mastership.superseded_by is not None:
            return False
        if mastership.role.epoch and not mastership.epoch_lost:
            return False  # too few name servers answered
        return await mastership.take() and await mastership.renew()

    async def _renew_forever(self) -> None:
        """Apart from everything else: an end or a start that takes long costs no lease."""
        mastership = self._mastership
        while True:
            if mastership.role.master:
                await self._renew_once()
            await asyncio.sleep(mastership.interval_s)

    async def _renew_once(self) -> None:
        mastership = self._mastership
        try:
            held = await mastership.renew()
            if mastership.epoch_lost and mastership.superseded_by is None and await mastership.take():
                if self.broker is not None:
                    self.broker.site.epoch = mastership.role.epoch
                held = await mastership.renew()
        except DejamqError as error:
            log.error("mastership_not_kept error=%s", error)
            return
        if held != self._held and self.broker is not None and self.broker.site.master:
            self.broker.note_mastership("lease_regained" if held else "lease_lost")
        self._held = held

    async def _watch(self) -> None:
        """Change the role when it is time to. An error that cannot be mended here ends this broker."""
        assert self.ended is not None
        try:
            while True:
                await asyncio.sleep(self._mastership.interval_s)
                try:
                    await self._step()
                except ConfigError:
                    raise
                except DejamqError as error:
                    log.error("failover_step_failed error=%s", error)
                    if self.broker is None:
                        raise
        except Exception as error:
            self._renewing.cancel()  # so that another replica may be master
            self._mastership.give_up()
            log.exception("failover_ended broker=%s", self.config.broker_name)
            self.ended.set_exception(error)

    async def _step(self) -> None:
        """First what the role is to be, then a life in that role: what failed half way is done at the next step."""
        mastership = self._mastership
        if not mastership.role.master and await self.may_take_over():
            state = self._following()
            if state is not None and await mastership.take(state.replica):
                await mastership.renew()
        by = mastership.superseded_by if mastership.role.master else None
        if by is not None and not await mastership.step_down(by):
            raise ConfigError(f"another store is master since epoch {by.confirmed_epoch}: {NO_ID}")
        if self.broker is not None and self.broker.site.broker_id == mastership.role.broker_id:
            return
        if not mastership.role.master:
            await self._change_life("stepped_down", "another replica is master")
        elif mastership.holds():
            await self._change_life("took_over", f"epoch {mastership.role.epoch}")

    async def may_take_over(self) -> bool:
        """Whether enough name servers lost the master, and this slave followed it until then."""
        state, config = self._following(), self.config
        if state is None or not state.caught_up or self.broker is None or not self.broker.tables_copied:
            return False
        silent_ms = await self._mastership.look(state.replica)
        if silent_ms is None or self.broker is None:
            return False
        lost_ms = (boot_clock_s() - state.heard_s) * 1000
        behind = state.master_end - self.broker.domain.store.log_max
        return (
            lost_ms <= silent_ms + config.failover_lease_ms + config.ha_send_heartbeat_interval_ms
            and behind <= config.ha_max_gap_not_in_sync
        )

    def _following(self) -> ReplicationState | None:
        return None if self.broker is None else self.broker.following()


def _own_place(directory: Path) -> str:
    """Where this store is, which no other process serves now. Raises StoreError, StoreLocked."""
    try:
        DirectoryLock(StorePaths(directory)).release()
        return place_of(directory)
    except OSError as error:
        raise StoreError(f"{directory} cannot be a store: {error.strerror}; choose another directory") from None


def broker_of(config: BrokerConfig) -> Broker | FailoverBroker:
    """The broker that these settings ask for. Raises ConfigError, also as ``unfenced`` does."""
    return FailoverBroker(config) if config.failover_enable else unfenced(config)


def unfenced(config: BrokerConfig, guest: Guest | None = None) -> Broker:
    """A broker that asks nobody whether it may be master. Raises ConfigError where its store says that it must ask."""
    directory = StorePaths(config.store_directory).root.expanduser()
    if epoch := RoleFile(directory).read(config.broker_id).epoch:
        raise ConfigError(
            f"the store {directory} took part in fail-over (epoch {epoch}), and another replica may be master now: set "
            f"failover_enable=true at `dejamq serve broker`, or remove config/{FILE_NAME} there once no other replica "
            "takes messages"
        )
    return Broker(config, guest=guest)
