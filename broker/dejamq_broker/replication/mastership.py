"""A replica's right to be its broker's master, with ``failover_enable``: an epoch that enough name servers granted, and
a lease that as many renew.

Of N name servers N // 2 + 1 have to grant an epoch. A master goes on while N - N // 2 of them renew its lease. Two such
sets always share a name server, and that one grants nobody an epoch before its lease for the master is over. A master
counts its lease from the moment in which it asked, and ends it sooner than name servers do. So clocks need not agree;
they only have to run about equally fast.

Source of the idea: RocketMQ 5 ``ControllerManager`` (epochs), ``BrokerController`` (acting master).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Protocol

import msgspec
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.names import MASTER_ID

from dejamq_broker.base import json_file
from dejamq_broker.base.disk_work import beside_loop

log = logging.getLogger(__name__)
FILE_NAME = "mastership.json"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LEASE_OVER = "this broker's lease as master is over: a slave that takes its place may not have it"
PROCESSES = 64
"""So many earlier processes are known. A name server that was away for as many starts takes the next epoch alone."""
ROUNDS = 5
"""So often a lease is renewed while it lasts."""
TRUSTED = 0.7
"""A master trusts this part of its lease, so that its clock may be slower than a name server's."""


class MastershipWish(msgspec.Struct, frozen=True):
    """What a replica asks of a name server; ``kind`` is look, take or renew."""

    kind: str
    epoch: int = 0
    followed: str = ""


class GrantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One name server's answer; see ``MastershipResponse``."""

    done: bool
    reason: str = ""
    granted_epoch: int = 0
    granted_replica: str = ""
    confirmed_epoch: int = 0
    confirmed_replica: str = ""
    confirmed_broker_id: int = 0
    silent_ms: int = 0
    other_process: bool = False


class Granter(Protocol):
    """A name server. ``ask`` raises DejamqError."""

    address: str

    async def ask(self, wish: MastershipWish, role: "Role", lease_ms: int, timeout_ms: float) -> GrantAnswer: ...


class Role(msgspec.Struct, frozen=True, rename="camel"):
    """What this store's broker is. ``replica`` names the store for ever; ``epoch`` is the last that it was master of.

    ``broker_id`` may differ from the configured one. ``came_from`` is the id that it had before it became master.
    ``confirmed``: name servers have renewed that epoch, so it was in use.

    ``ended``: processes that served the store at ``place``, the present one last. ``before``: those elsewhere.
    """

    replica: str
    broker_id: int
    epoch: int = 0
    came_from: int = 0
    confirmed: bool = False
    place: str = ""
    ended: tuple[str, ...] = ()
    before: tuple[str, ...] = ()

    def served_by(self, process: str, place: str) -> "Role":
        """A process begins to serve it. At the same place all earlier ones have ended, as only one locks a store."""
        if place == self.place:
            return msgspec.structs.replace(self, ended=(*self.ended, process)[-PROCESSES:])
        before = (*self.before, *self.ended)[-PROCESSES:]
        return msgspec.structs.replace(self, place=place, ended=(process,), before=before)

    @property
    def master(self) -> bool:
        return self.broker_id == MASTER_ID


class RoleFile:
    """``config/mastership.json`` of a store."""

    def __init__(self, store_directory: Path) -> None:
        self._path = store_directory / "config" / FILE_NAME

    def read(self, configured_id: int) -> Role:
        """As configured at the first start; that is not written before somebody is master. Raises UnreadableFile."""
        content, _ = json_file.load(self._path)
        if content is None:
            return Role(token_hex(8), configured_id, came_from=configured_id)
        try:
            role = msgspec.convert(content, Role)
        except msgspec.ValidationError as error:
            raise json_file.UnreadableFile(f"{self._path} is no role of a replica: {error}") from None
        return role if role.epoch else msgspec.structs.replace(role, broker_id=configured_id, came_from=configured_id)

    async def write(self, role: Role) -> None:
        """On disk when this returns. Raises SERVICE_NOT_AVAILABLE."""
        await beside_loop(json_file.write, self._path, msgspec.to_builtins(role))


def place_of(directory: Path) -> str:
    """Names this directory, on this machine since it started: no copy of it has the same name. Raises OSError."""
    at = directory.stat()
    return f"{BOOT_ID.read_text().strip()}:{at.st_dev}:{at.st_ino}"


def boot_clock_s() -> float:
    """Seconds since this machine started, those counted in which it slept; no change of the time of day moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Mastership:
    """Owned by the event loop. Whoever writes asks ``holds`` first."""

    def __init__(
        self, role: Role, file: RoleFile, judges: Sequence[Granter], lease_ms: int,
        clock_s: Callable[[], float] = boot_clock_s,
    ) -> None:  # fmt: skip
        self.role, self.lease_ms, self.interval_s = role, lease_ms, lease_ms / 1000 / ROUNDS
        self._file, self._judges, self._clock_s = file, judges, clock_s
        self._renewed = dict.fromkeys((judge.address for judge in judges), float("-inf"))
        self._until_s = float("-inf")
        self.needed = len(judges) // 2 + 1
        """So many name servers have to grant an epoch."""
        self.renewals_needed = len(judges) - self.needed + 1
        self._changing = asyncio.Lock()
        self._noted = not role.ended
        self.answers: list[GrantAnswer] = []
        """Of the last round."""

    def holds(self) -> bool:
        """Whether surely no other replica is master now."""
        return self._clock_s() < self._until_s

    def check(self) -> None:
        """Raise SERVICE_NOT_AVAILABLE unless ``holds``: nothing may be stored then."""
        if not self.holds():
            text = f"too few name servers renew this broker's mastership: {self.renewals_needed} must be reached"
            raise DejamqError(text, code=Code.SERVICE_NOT_AVAILABLE)

    def confirm(self) -> None:
        """Raise SYSTEM_ERROR unless ``holds``: what was just done may be unknown to the next master."""
        if not self.holds():
            raise DejamqError(f"it is done here, but {LEASE_OVER}; ask the master again", code=Code.SYSTEM_ERROR)

    def info(self) -> dict[str, str]:
        """For operators: the last epoch of this replica as master, and whether its lease holds."""
        return {"masterEpoch": str(self.role.epoch), "masterLease": str(self.holds()).lower()}

    def give_up(self) -> None:
        """From now on ``holds`` is false until a later renewal."""
        self._renewed = dict.fromkeys(self._renewed, float("-inf"))
        self._until_s = float("-inf")

    @property
    def superseded_by(self) -> GrantAnswer | None:
        """A later master that a name server told of in the last round."""
        role = self.role
        later = [
            each for each in self.answers
            if each.confirmed_epoch > role.epoch and each.confirmed_replica != role.replica
        ]  # fmt: skip
        return max(later, key=lambda each: each.confirmed_epoch, default=None)

    @property
    def epoch_lost(self) -> bool:
        """Whether some name server granted a later epoch to one that did not use it, or knows the present one as that
        of another process: a new epoch brings it back.
        """
        return any(each.granted_epoch > self.role.epoch or each.other_process for each in self.answers)

    async def look(self, followed: str) -> int | None:
        """Enough name servers would grant an epoch: for how long at least they have not heard of the master, in ms.

        None: too few would.
        """
        await self._ask(MastershipWish("look", followed=followed))
        willing = [each.silent_ms for each in self.answers if each.done]
        return min(willing) if len(willing) >= self.needed else None

    async def renew(self) -> bool:
        """Ask every name server to renew the lease. Whether it holds. Raises DejamqError when it cannot be noted."""
        await self._note()
        role = self.role
        await self._ask(MastershipWish("renew", role.epoch))
        if self.holds() and not role.confirmed:
            await self._become(msgspec.structs.replace(role, confirmed=True), role)
        return self.holds()

    async def take(self, followed: str = "") -> bool:
        """Become master of a new epoch, or not. The role is on disk before anybody is told. Raises DejamqError."""
        await self._note()
        highest = max([self.role.epoch, *(each.granted_epoch for each in self.answers)])
        await self._ask(MastershipWish("take", highest + 1, followed))
        granted = sum(each.done for each in self.answers)
        if granted < self.needed:
            log.info("mastership_not_granted epoch=%d granted=%d needed=%d", highest + 1, granted, self.needed)
            return False
        role = self.role
        came_from = role.came_from if role.master else role.broker_id
        became = msgspec.structs.replace(
            role, broker_id=MASTER_ID, epoch=highest + 1, came_from=came_from, confirmed=False
        )
        return await self._become(became, role)

    async def step_down(self, by: GrantAnswer) -> bool:
        """Be a slave, with the id that the later master left. False: that one was no slave before, so there is none.

        One whose own epoch was never in use goes back to the id that it had.

        Raises DejamqError.
        """
        self.give_up()
        role, unused = self.role, self.role.epoch and not self.role.confirmed
        freed = (role.came_from if unused else 0) or by.confirmed_broker_id
        if freed == MASTER_ID:
            return False
        became = msgspec.structs.replace(role, broker_id=freed, came_from=freed, confirmed=False)
        return await self._become(became, role)

    async def _note(self) -> None:
        """Which process serves the store is on its disk before name servers know it. Raises DejamqError."""
        async with self._changing:
            if not self._noted:
                await self._file.write(self.role)
                self._noted = True

    async def _become(self, role: Role, before: Role) -> bool:
        """One change after the other. Nothing changes where the role is no longer what it was ``before``."""
        async with self._changing:
            if self.role != before:
                return self.role == role
            await self._file.write(role)
            self.role = role
            return True

    async def _ask(self, wish: MastershipWish) -> None:
        """All at once; a name server that hangs holds up no other, and this for one interval at most."""
        found = await asyncio.gather(*(self._ask_one(judge, wish) for judge in self._judges))
        self.answers = [each for each in found if each is not None]

    async def _ask_one(self, judge: Granter, wish: MastershipWish) -> GrantAnswer | None:
        asked_s = self._clock_s()
        try:
            verdict = await judge.ask(wish, self.role, self.lease_ms, self.interval_s * 1000)
        except DejamqError as error:
            log.debug("mastership_unanswered namesrv=%s wish=%s error=%s", judge.address, wish.kind, error)
            return None
        if wish.kind == "renew" and verdict.done:
            self._renewed[judge.address] = asked_s
            oldest = sorted(self._renewed.values(), reverse=True)[self.renewals_needed - 1]
            self._until_s = oldest + self.lease_ms / 1000 * TRUSTED
        elif not verdict.done:
            log.debug("mastership_refused namesrv=%s wish=%s reason=%s", judge.address, wish.kind, verdict.reason)
        return verdict
