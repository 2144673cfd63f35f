"""A cluster that stays when the command that started it has ended: its processes are written down in a folder."""

import asyncio
import os
import shlex
import shutil
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from dejamq_broker.base.config import SLAVE, BrokerConfig
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.writer import open_journal
from dejamq_proto.loose_json import BAD_JSON

from dejamq_lab.cluster import rpc_control
from dejamq_lab.cluster.plan import ClusterPlan, replica_of, server_name
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.cluster.waiting import until, until_async
from dejamq_lab.errors import ClusterFailed

STATE_FILE = "cluster.json"
NAMESRV_PORT, BROKER_PORT, BROKER_PORT_STEP = 9876, 10911, 10
STOP_TIMEOUT_S, READY_TIMEOUT_S = 20, 30


class RunningServer(msgspec.Struct, frozen=True):
    """One server process. ``born`` tells it from a later process with the same id."""

    name: str
    role: str
    pid: int
    address: str
    born: int

    @property
    def runs(self) -> bool:
        return self.born != 0 and process_born(self.pid) == self.born

    def send_signal(self, number: signal.Signals) -> None:
        """To this process only; nothing when it is gone."""
        if self.runs:
            os.kill(self.pid, number)


@dataclass(frozen=True)
class Size:
    namesrvs: int = 2
    brokers: int = 2
    slaves: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    journal_level: str = "audit"


class StandingCluster(msgspec.Struct, frozen=True):
    """The content of the state file; ``size``: as it was asked for, None in the file of an older version."""

    processes: tuple[RunningServer, ...] = ()
    size: Size | None = None

    @property
    def namesrv(self) -> str:
        return ";".join(member.address for member in self.processes if member.role == "namesrv")

    def running(self, role: str = "") -> list[RunningServer]:
        return [member for member in self.processes if member.runs and role in ("", member.role)]


class ReplicaRole(msgspec.Struct, frozen=True):
    """``role``: ASYNC_MASTER, SYNC_MASTER or SLAVE, '' of a master that does not answer.

    ``lag_bytes`` and ``lag_ms``: how far a slave is behind. Of one that does not follow only the bytes can be told, and
    only while its master answers; ``trouble`` is then why it does not follow.
    """

    role: str
    lag_bytes: int | None = None
    lag_ms: int | None = None
    trouble: str = ""


def read_state(directory: Path) -> StandingCluster:
    """Raises ConfigError when no cluster was started there, or the file is not ours."""
    path, quoted = directory / STATE_FILE, shlex.quote(str(directory))
    try:
        return msgspec.json.decode(path.read_bytes(), type=StandingCluster)
    except FileNotFoundError:
        raise ConfigError(f"no cluster in {directory}; start one with: dejamq cluster up --dir {quoted}") from None
    except (OSError, *BAD_JSON) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


async def up(directory: Path, size: Size) -> StandingCluster:
    """Start all servers and return when clients can use them. Raises ConfigError, ClusterFailed; then nothing runs."""
    plan = _prepare(directory, size)
    directory = plan.directory
    members: list[RunningServer] = []
    try:
        members += await _start(directory, [
            plan.namesrv(name, free_address(NAMESRV_PORT + number)) for number, name in enumerate(plan.namesrv_names())
        ], anywhere=True)  # fmt: skip
        _write_state(directory, StandingCluster(tuple(members), size))
        namesrv = StandingCluster(tuple(members)).namesrv
        members += await _start(directory, [
            plan.broker(name, namesrv, free_address(BROKER_PORT + number * BROKER_PORT_STEP))
            for number, name in enumerate((*plan.broker_names(), *plan.slave_names()))
        ], anywhere=True)  # fmt: skip
        _write_state(directory, StandingCluster(tuple(members), size))
        await _ready(StandingCluster(tuple(members)))
    except BaseException:
        await down(StandingCluster(tuple(members)))
        raise
    return StandingCluster(tuple(members))


async def start(directory: Path) -> list[RunningServer]:
    """Start again what has stopped, each with its store at its address, and return when clients can use it.

    Returns the new processes. Raises ConfigError where no cluster was started, and ClusterFailed.
    """
    state = read_state(directory)
    if state.size is None:
        raise ConfigError(f"an older version started the cluster in {directory}: end it, and start it with: cluster up")
    plan, members = _plan(directory, state.size), {member.name: member for member in state.processes}
    started: list[RunningServer] = []
    for role in ("namesrv", "broker"):
        stopped = [member for member in state.processes if member.role == role and not member.runs]
        started += await _start(plan.directory, [
            plan.namesrv(one.name, one.address) if role == "namesrv"
            else plan.broker(one.name, state.namesrv, one.address) for one in stopped
        ])  # fmt: skip
        members |= {member.name: member for member in started}
        _write_state(plan.directory, StandingCluster(tuple(members.values()), state.size))
    await _ready(StandingCluster(tuple(members.values())))
    return started


def _prepare(directory: Path, size: Size) -> ClusterPlan:
    """Refuse what cannot be before anything is started."""
    if (directory / STATE_FILE).exists() and (running := read_state(directory).running()):
        names, quoted = ", ".join(member.name for member in running), shlex.quote(str(directory))
        raise ConfigError(
            f"a cluster already runs in {directory} ({names}); end it with: dejamq cluster down --dir {quoted}, "
            f"or start what has stopped of it with: dejamq cluster start --dir {quoted}"
        )
    plan = _plan(directory, size)
    plan.check()
    directory.mkdir(parents=True, exist_ok=True)
    return plan


def _plan(directory: Path, size: Size) -> ClusterPlan:
    return ClusterPlan(
        directory.absolute(), size.brokers, size.namesrvs, settings=size.settings, journal_level=size.journal_level,
        slaves=size.slaves,
    )  # fmt: skip


async def _start(
    directory: Path, configs: Sequence[NamesrvConfig | BrokerConfig], *, anywhere: bool = False
) -> list[RunningServer]:
    """Side by side: most of a start is Python's imports, one core each. All of them run then, or none.

    ``anywhere``: one whose port was taken meanwhile, as by another cluster that starts now, gets a free one.
    """
    faults = open_journal(None, role="harness", process="lab", boot_id="", level="off")
    servers = [ServerProcess(each, directory / server_name(each), faults, tied=False) for each in configs]
    try:
        for server in servers:
            server.spawn()
        for server in servers:
            await (server.started_anywhere() if anywhere else server.started())
    except BaseException:
        await asyncio.gather(*(server.ended() for server in servers))
        raise
    return [RunningServer(each.name, each.role, each.pid, each.address, process_born(each.pid)) for each in servers]


async def _ready(standing: StandingCluster) -> None:
    addresses = {member.address for member in standing.processes if member.role == "broker"}
    slaves = [member.address for member in standing.processes if member.role == "broker" and replica_of(member.name)[1]]

    async def registered() -> bool:
        found = [await rpc_control.registered_addresses(address) for address in standing.namesrv.split(";")]
        return all(addresses <= some for some in found) and all([await rpc_control.follows(each) for each in slaves])

    if not await until_async(registered, READY_TIMEOUT_S):
        raise ClusterFailed(f"the brokers have not registered, or slaves do not follow, within {READY_TIMEOUT_S} s")


async def states(standing: StandingCluster) -> list[tuple[RunningServer, str]]:
    """Each process with ``running`` (and healthy), ``unhealthy`` or ``stopped``."""

    async def state(member: RunningServer) -> str:
        if not member.runs:
            return "stopped"
        return "running" if await rpc_control.healthy(member.address) else "unhealthy"

    found = await asyncio.gather(*map(state, standing.processes))
    return list(zip(standing.processes, found, strict=True))


async def replicas(standing: StandingCluster) -> dict[str, ReplicaRole]:
    """Of each broker that runs: what it is, and how far behind its master a slave is."""

    names = [member.name for member in standing.running("broker")]
    told = await asyncio.gather(*(rpc_control.runtime(member.address) for member in standing.running("broker")))
    values = dict(zip(names, told, strict=True))
    return {name: _replica(name, values[name], values.get(replica_of(name)[0], {})) for name in names}


def _replica(name: str, values: Mapping[str, str], master: Mapping[str, str]) -> ReplicaRole:
    """From what a broker says of itself, and its master of itself; either may be silent."""
    if not replica_of(name)[1]:
        return ReplicaRole(values.get("brokerRole", ""))
    if values.get("following") == "true":
        return ReplicaRole(SLAVE, int(values["lagBytes"]), int(values["lagMs"]))
    ends = [told.get("commitLogMaxOffset") for told in (master, values)]
    behind = int(ends[0]) - int(ends[1]) if ends[0] is not None and ends[1] is not None else -1
    trouble = values.get("followingTrouble") or "it does not answer"
    return ReplicaRole(SLAVE, behind if behind >= 0 else None, trouble=trouble)  # ahead: the logs are no longer one


async def down(standing: StandingCluster) -> list[RunningServer]:
    """End what still runs; SIGKILL what does not end in time. Returns what was running.

    Masters first: they end when their slaves have the last message. Brokers leave before their name servers do.
    """
    ended, brokers = standing.running(), standing.running("broker")
    masters = [broker for broker in brokers if not replica_of(broker.name)[1]]
    slaves = [broker for broker in brokers if broker not in masters]
    for members in (masters, slaves, standing.running("namesrv")):
        for member in members:
            member.send_signal(signal.SIGCONT)
            member.send_signal(signal.SIGTERM)
        if not await until(lambda members=members: not any(m.runs for m in members), STOP_TIMEOUT_S):  # type: ignore[misc]  # a default binds the loop's variable
            for member in members:
                member.send_signal(signal.SIGKILL)
    return ended


def purge(directory: Path, standing: StandingCluster) -> None:
    """Remove stores, journals and logs of a cluster that has ended, and nothing else."""
    for name in ("journal", *(member.name for member in standing.processes)):
        shutil.rmtree(directory / name, ignore_errors=True)
    (directory / STATE_FILE).unlink(missing_ok=True)
    if directory.exists() and not any(directory.iterdir()):
        directory.rmdir()


def free_address(port: int) -> str:
    """127.0.0.1 with this port when it is free, else with any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return "127.0.0.1:0"
    return f"127.0.0.1:{port}"


def process_born(pid: int) -> int:
    """When the process started, in ticks since boot; 0 without such a process, or for an unreaped zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = status.rpartition(")")[2].split()
    return 0 if fields[0] == "Z" else int(fields[19])


def _write_state(directory: Path, standing: StandingCluster) -> None:
    temporary = directory / f"{STATE_FILE}.tmp"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(standing)))
    os.replace(temporary, directory / STATE_FILE)
