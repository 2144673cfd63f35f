"""The server under test: a process of its own behind a relay, so that it can be struck, and everybody be cut off."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from pathlib import Path

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.base.identity import reachable
from dejamq_proto import failpoints
from dejamq_proto.account import Account
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.events import Fault as FaultEvent
from dejamq_proto.journal.writer import Journal, new_boot_id, open_journal
from dejamq_proto.serving.server import CANNOT_LISTEN

from dejamq_lab.cluster import rpc_control
from dejamq_lab.cluster.plan import LOOPBACK, as_flags
from dejamq_lab.cluster.ports import hold, port_of
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.cluster.relay import DOWN, UP, Relay
from dejamq_lab.cluster.waiting import until_async
from dejamq_lab.control import faults
from dejamq_lab.errors import ClusterFailed

STANDARD_ERROR = 2
READY_S, TOLD_S = 60, 15
USED_UP = "0*off->"
"""Before terms that are armed for the second time: the text has to be another one, or they do not count anew."""


class DevProcess(ServerProcess):
    """``python -m dejamq_lab.dev`` at a port of the loopback. Its log lines go where those of this process go."""

    errors = STANDARD_ERROR

    def __init__(self, config: BrokerConfig, directory: Path, journal: Journal) -> None:
        super().__init__(config, directory, journal, failpoints=True)
        self.address = config.listen

    def command(self) -> list[str]:
        launcher = [sys.executable, "-m", *self._launcher, "dejamq_lab.dev"]
        return [*launcher, *as_flags(self._config), "--listen", self.address]

    def advertise(self, address: str) -> None:
        """From the next start on."""
        assert isinstance(self._config, BrokerConfig)
        self._config = replace(self._config, advertise=address)

    def _ready_line(self) -> bool:
        return any(line.startswith("ready dev ") for line in self._said())

    def _last_words(self) -> str:
        return "its process said why, or nothing in time"


@dataclass
class Armed:
    """A fault of calls, as it was armed last. ``before``: strikes of its places that were earlier faults'."""

    fault: faults.OnCalls
    before: int


class ServerUnderTest:
    """Owned by the event loop. One strike is done after the other."""

    def __init__(self, config: BrokerConfig, directory: Path, account: Callable[[], Account | None]) -> None:
        """``config``: as of a server that is no process of its own. ``directory`` gets its log and armed faults.

        By ``account`` it shows the server who it is; where that gives None, by the keys of the environment.
        """
        self._public, self._account = config, account
        directory.mkdir(parents=True, exist_ok=True)
        self.journal_dir = Path(config.journal_dir or directory / "journal")
        self._journal = open_journal(
            self.journal_dir, role="harness", process="control", boot_id=new_boot_id(), level="forensic"
        )
        self._relay = Relay(lambda: self._process.address)
        self._held = [hold(LOOPBACK), hold(LOOPBACK)]
        own = replace(
            config, listen=f"{LOOPBACK}:{port_of(self._held[0])}", fast_port=port_of(self._held[1]),
            journal_dir=str(self.journal_dir), journal_level="forensic",
            http_token=config.http_token if config.metrics_on else "",
        )  # fmt: skip
        self._process = DevProcess(own, directory, self._journal)
        self._armed_at = directory / "failpoints"
        for file in (self._armed_at, failpoints.struck_file(self._armed_at)):
            file.unlink(missing_ok=True)  # of an earlier run on the same store
        self._armed: dict[str, Armed] = {}
        self._times_armed: Counter[str] = Counter()
        self._link: faults.CutFault | faults.DelayFault | None = None
        self._striking = asyncio.Lock()
        self.address = ""

    # --- life

    async def start(self) -> str:
        """The address that clients are told, once they can connect. Raises ConfigError and ClusterFailed."""
        host, _, port = self._public.listen.rpartition(":")
        try:
            bound = await self._relay.start(host.strip("[]"), int(port))
        except (OSError, OverflowError):
            raise ConfigError(
                f"{CANNOT_LISTEN} {self._public.listen}: the port is in use or the address is not of this machine"
            ) from None
        bound = f"{host}:{bound.rpartition(':')[2]}"
        self.address = self._public.advertised().get("") or reachable(bound)
        self._process.advertise(self._public.advertise or self.address)
        self._process.spawn()
        await self._process.started()
        return self.address

    async def close(self) -> None:
        """The server drains and ends."""
        await self._process.ended()
        if self.address:
            await self._relay.close()
        for held in self._held:
            held.close()
        self._journal.close()

    # --- what it is told

    async def strike(self, fault: faults.ServerFault) -> None:
        """Do one fault. Raises ClusterFailed where the server cannot suffer it now."""
        async with self._striking:
            await self._strike(fault)

    async def clear(self) -> None:
        """Everything is as at the beginning, but for what was stored. Raises ClusterFailed."""
        async with self._striking:
            for name in list(self._armed):
                self._disarm(name)
            await self._strike(faults.HealFault())
            if self._process.state == "paused":
                self._process.resume()
            elif self._process.state == "stopped":
                await self._strike(faults.RestartFault())

    async def advertise(self, address: str) -> None:
        """Routes say this address when this returns, and those of a server that is started again will. Raises
        DejamqError.
        """
        if "=" in address or ";" in address or "," in address:
            raise ConfigError(f"{address!r} is not one HOST:PORT")
        self._running("advertise")
        await rpc_control.update_settings(self._process.address, {"advertise": address}, self._account())

        async def told() -> bool:
            return address in await rpc_control.registered_addresses(self._process.address, self._account())

        if not await until_async(told, TOLD_S):
            raise ClusterFailed("the server took the address, and its routes do not say it yet: ask again")
        self._process.advertise(address)
        self.address = address

    # --- what it says

    async def health(self) -> faults.Health:
        """Of the server, and whether clients reach it."""
        state = self._process.state
        if state == "running" and not self._relay.refusing:
            status = "SERVING" if await rpc_control.healthy(self._process.address) else "NOT_SERVING"
        else:
            status = "CUT" if state == "running" else state.upper()
        store = self._public.store_directory
        return faults.Health(status, state, self.address, store, str(self.journal_dir))

    def standing(self) -> faults.Faults:
        """Faults that were asked for and not ended. One whose count is used up stays until it is cleared."""
        struck = self.struck()
        found = [
            faults.Standing(
                one.fault.tag, one.fault.operation, one.fault.count, struck[name] - one.before,
                ms=getattr(one.fault, "ms", None),
            ) for name, one in self._armed.items()
        ]  # fmt: skip
        if self._link is not None:
            found.append(
                faults.Standing(
                    self._link.tag, mode=getattr(self._link, "mode", None), ms=getattr(self._link, "ms", None)
                )
            )
        if self._process.state != "running":
            found.append(faults.Standing("pause" if self._process.state == "paused" else "kill"))
        return faults.Faults(self._process.state, found)

    def struck(self) -> Counter[str]:
        """How many calls the failpoints of each fault have met since the start."""
        by_place = Counter(place for _, place in self.strikes())
        return Counter({names: sum(by_place[place] for place in names.split("|")) for names in self._times_armed})

    def strikes(self) -> list[tuple[int, str]]:
        """When a failpoint met a call, in microseconds since 1970, and its place."""
        try:
            lines = failpoints.struck_file(self._armed_at).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(at_us), place) for at_us, place, _ in map(str.split, lines)]

    # --- each fault

    @singledispatchmethod
    async def _strike(self, fault: faults.ServerFault) -> None:
        raise TypeError(fault)

    @_strike.register
    async def _on_calls(self, fault: faults.OnCalls) -> None:
        """A second one of the same calls takes the place of the first."""
        self._arm(fault, fault.count)
        self._armed[fault.places] = Armed(fault, self.struck()[fault.places])

    @_strike.register
    async def _cut(self, fault: faults.CutFault) -> None:
        self._note(f"cut {fault.mode}")
        self._relay.heal()
        if fault.mode == "silent":
            self._relay.lose(UP, DOWN)
        else:
            self._relay.cut()
        self._link = fault

    @_strike.register
    async def _delay(self, fault: faults.DelayFault) -> None:
        self._note(f"delay {fault.ms}")
        self._relay.heal()
        self._relay.delay(fault.ms)
        self._link = fault

    @_strike.register
    async def _heal(self, _: faults.HealFault) -> None:
        self._relay.heal()
        if self._link is not None:
            self._note("heal")
        self._link = None

    @_strike.register
    async def _pause(self, _: faults.PauseFault) -> None:
        if self._process.state != "paused":
            self._running("pause")
            self._process.pause()

    @_strike.register
    async def _resume(self, _: faults.ResumeFault) -> None:
        if self._process.state == "paused":
            self._process.resume()

    @_strike.register
    async def _kill(self, _: faults.KillFault) -> None:
        if self._process.state != "stopped":
            self._process.kill()

    @_strike.register
    async def _restart(self, _: faults.RestartFault) -> None:
        """A server that starts counts its faults from nothing, so each is armed with what it has left."""
        await self._process.ended()
        struck = self.struck()
        for name, one in self._armed.items():
            left = one.fault.count - (struck[name] - one.before)
            self._arm(one.fault, left)
        self._process.restart()
        await self._process.started()

        async def serves() -> bool:
            return await rpc_control.healthy(self._process.address)

        if not await until_async(serves, READY_S):
            raise ClusterFailed(f"the server does not serve {READY_S} s after its start: see its log")

    def _arm(self, fault: faults.OnCalls, count: int) -> None:
        self._times_armed[fault.places] += 1
        again = USED_UP * (self._times_armed[fault.places] % 2)
        self._process.arm(fault.places, f"{again}{count}*{fault.action()}->off" if count > 0 else f"{again}off")

    def _disarm(self, name: str) -> None:
        del self._armed[name]
        self._process.arm(name, "off")

    def _running(self, what: str) -> None:
        if (state := self._process.state) != "running":
            cure = "resume" if state == "paused" else "restart"
            raise ClusterFailed(f"{what}: the server is {state}; {cure} it first")

    def _note(self, kind: str) -> None:
        self._journal.write(FaultEvent(kind=kind, target="server", phase="end"))
