"""A whole cluster in one ``async with``: name servers, brokers, topics, and clients that fit to it."""

import asyncio
import importlib.util
import shutil
import tempfile
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from dejamq_proto.codes import ConfigError
from dejamq_proto.journal.events import State
from dejamq_proto.journal.writer import Journal, new_boot_id, open_journal

from dejamq_lab.auditing import audit
from dejamq_lab.cluster import rpc_control
from dejamq_lab.cluster.clients import ClusterClients
from dejamq_lab.cluster.plan import LOOPBACK, ClusterPlan, replica_of
from dejamq_lab.cluster.process import ProcessServers, ServerProcess
from dejamq_lab.cluster.waiting import until_async
from dejamq_lab.duplicates import Duplicate, find_duplicates
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.foreign import has_foreign_members, journals_of

if TYPE_CHECKING:
    from dejamq_broker.base.config import BrokerConfig

    from dejamq_lab.cluster.inproc import InProcessServer, InProcessServers

READY_TIMEOUT_MS = 30_000
Answer = TypeVar("Answer")


class Cluster(ClusterClients):
    """Name servers and brokers on free ports of 127.0.0.1, ready when ``start`` returns.

    Servers run in this process by default. With ``processes=True``, and always in a plain ``with``, they are processes
    that can be killed. Journals and stores live in ``directory``. Without one they live in a temporary folder, which
    goes when the cluster is garbage or Python ends, so that a closed cluster can be audited. ``settings`` are for
    servers and clients, in either spelling. ``time_scale`` shrinks every interval by that factor, and RPC time-outs by
    its square root.
    """

    def __init__(
        self,
        brokers: int = 1,
        namesrvs: int = 1,
        *,
        slaves: int = 0,
        processes: bool = False,
        time_scale: float = 1.0,
        settings: Mapping[str, Any] | None = None,
        topics: Mapping[str, int] | None = None,
        journal_level: str = "forensic",
        directory: str | Path | None = None,
        host: str = LOOPBACK,
    ) -> None:
        """``topics``: name -> queues at each broker. ``slaves``: of each (``broker-a-s1``). Raises ConfigError.

        ``host``: an address of this machine where the servers listen, of 127.0.0.0/8 in Linux.
        """
        self._directory = Path(directory).absolute() if directory else Path(tempfile.mkdtemp(prefix="dejamq-"))
        if not directory:
            weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        plan = ClusterPlan(
            self._directory, brokers, namesrvs, time_scale, settings or {}, topics or {}, journal_level, slaves, host
        )
        plan.check()
        super().__init__(plan)
        self._processes = processes
        self.failpoints = False
        """Whether server processes look for armed failpoints. Before the start only."""
        self._servers: ProcessServers | InProcessServers | None = None
        self._namesrvs: list[ServerProcess | InProcessServer] = []
        self._brokers: list[ServerProcess | InProcessServer] = []
        self._journal: Journal | None = None

    # --- life

    async def start(self) -> None:
        """Returns when every topic is routed everywhere. Raises ClusterFailed; nothing is left running then."""
        if self._servers is not None:
            return
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        try:
            self.journal_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterFailed(f"a cluster cannot be kept in {self._directory}: {error.strerror}") from None
        self._servers = servers = self._make_servers()
        self._namesrvs, self._brokers = [], []
        for name in self._plan.namesrv_names():
            self._namesrvs.append(await servers.start_namesrv(self._plan.namesrv(name)))
        for name in self._plan.broker_names():
            self._brokers.append(await servers.start_broker(await self._broker_config(name)))
        for topic, queues in self._plan.topics.items():
            for broker in self._brokers:
                await rpc_control.create_topic(broker.address, topic, queues)
        for name in self._plan.slave_names():
            self._brokers.append(await servers.start_broker(await self._broker_config(name)))
        await self.ready()

    async def _broker_config(self, name: str) -> "BrokerConfig":
        """The configuration that a broker starts with; the name servers run already."""
        return self._plan.broker(name, self.namesrv)

    def _make_servers(self) -> "ProcessServers | InProcessServers":
        if not self._processes:
            # brings the whole broker into this process: only where that is wanted
            from dejamq_lab.cluster.inproc import InProcessServers

            return InProcessServers(self._directory if self.failpoints else None)
        self._journal = open_journal(
            self.journal_dir, role="harness", process="lab", boot_id=new_boot_id(), level=self._plan.journal_level
        )
        self._journal.write(State(state="started", reason=f"level={self._journal.level}"))
        servers = self.process_servers(self._journal)
        weakref.finalize(self, servers.kill_all)
        return servers

    def process_servers(self, journal: Journal) -> ProcessServers:
        """The starter of servers that are processes of their own."""
        return ProcessServers(self._directory, journal, failpoints=self.failpoints)

    async def ready(self, timeout_ms: float = READY_TIMEOUT_MS) -> None:
        """Wait until every server that runs serves and every topic is routed to every running broker.

        Raises ClusterFailed when that takes longer, or a server that was restarted did not start.
        """
        for server in (*self._namesrvs, *self._brokers):
            if isinstance(server, ServerProcess) and server.state == "running":
                await server.started()
        if not await until_async(self._is_ready, timeout_ms / 1000):
            raise ClusterFailed(
                f"the cluster is not ready after {timeout_ms:.0f} ms; see the logs in {self._directory}"
            )

    async def _is_ready(self) -> bool:
        namesrvs, brokers = (self._running(servers) for servers in (self._namesrvs, self._brokers))
        if not all(await asyncio.gather(*(rpc_control.healthy(s.address) for s in (*namesrvs, *brokers)))):
            return False
        addresses, names = {broker.address for broker in brokers}, {replica_of(broker.name)[0] for broker in brokers}
        for namesrv in namesrvs:
            if not addresses <= await rpc_control.registered_addresses(namesrv.address):
                return False
            found = [await rpc_control.routed_brokers(namesrv.address, topic) for topic in self._plan.topics]
            if not all(names <= some for some in found):
                return False
        if not self._plan.failover:  # else any replica may be the master
            masters, configured = {broker.name for broker in brokers}, self._plan.broker_names()
            brokers = [one for one in brokers if one.name not in configured and replica_of(one.name)[0] in masters]
        return all([await rpc_control.in_place(broker.address) for broker in brokers])

    def _running(self, servers: "list[ServerProcess | InProcessServer]") -> "list[ServerProcess | InProcessServer]":
        return [one for one in servers if (one.state == "running" if isinstance(one, ServerProcess) else one.running)]

    async def close(self) -> None:
        """Brokers drain and leave, then the name servers end. May be called twice; the journals stay."""
        servers, self._servers = self._servers, None
        try:
            if servers is not None:
                await servers.close()
        finally:
            if self._journal is not None:
                self._journal.write(State(state="closed"))
                self._journal.close()
                self._journal = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> Self:
        self._processes = True
        _run(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run(self.close())

    # --- what it is made of

    @property
    def namesrv(self) -> str:
        """``host:port;…`` of all name servers, as clients want it; empty before the start."""
        return ";".join(server.address for server in self._namesrvs)

    @property
    def journal(self) -> Journal | None:
        """The lab's own journal, where faults are written; None while no processes run."""
        return self._journal

    @property
    def journal_dir(self) -> Path:
        return self._plan.journal_dir

    @property
    def store_dirs(self) -> list[Path]:
        """The store of each master, in order of name."""
        return [self._directory / name / "store" for name in self._plan.broker_names()]

    def broker(self, name: str) -> "ServerProcess | InProcessServer":
        """The broker of that name, for faults. Raises ConfigError with the names there are."""
        for broker in self._brokers:
            if broker.name == name:
                return broker
        names = [*self._plan.broker_names(), *self._plan.slave_names()]
        raise ConfigError(f"no broker {name!r} in this cluster; it has {', '.join(names)}")

    def server(self, name: str) -> "ServerProcess | InProcessServer":
        """A name server or broker by its name. Raises ConfigError."""
        found = [server for server in self._namesrvs if server.name == name]
        return found[0] if found else self.broker(name)

    def namesrv_at(self, index: int) -> "ServerProcess | InProcessServer":
        """The name server at this place of ``namesrv``, for faults. Raises ConfigError."""
        if not 0 <= index < len(self._namesrvs):
            raise ConfigError(f"no name server {index} in this cluster; it has {len(self._namesrvs)}, counted from 0")
        return self._namesrvs[index]

    # --- what it shows

    async def duplicates(self, group: str, *, logs: Sequence[str | Path] = ()) -> list[Duplicate]:
        """Deliveries to the group that repeat another one and that nobody asked for, by identity only.

        They are read from the journals: close a consumer first (or use ``forensic``) to see its last deliveries. Those
        to RocketMQ's own clients are read from their traces; ``logs`` are folders with logs of such clients, one for
        each. Raises ClusterFailed where such a member worked and its deliveries cannot be seen.
        """
        return await asyncio.to_thread(self._duplicates, group, [*map(Path, logs)])

    def _duplicates(self, group: str, logs: Sequence[Path]) -> list[Duplicate]:
        if not has_foreign_members(self.journal_dir):
            return find_duplicates(self.journal_dir, group)
        with journals_of(group, self.journal_dir, self.store_dirs, logs) as made:
            return find_duplicates(self.journal_dir, group, made)

    async def audit(self, *, logs: Sequence[str | Path] = ()) -> SimpleNamespace:
        """The full audit of journals and stores: verdict.json's fields as attributes. Of RocketMQ's own clients it
        reads the traces, and their ``logs``: a folder for each client.

        Raises ConfigError when the extra is not installed, ClusterFailed with the audit's own words when it fails.
        """
        if importlib.util.find_spec("pyspark") is None:
            raise ConfigError("the audit needs Spark: pip install 'dejamq[analytics]'")
        foreign = has_foreign_members(self.journal_dir)
        evidence = [*map(Path, logs), *(self.store_dirs if foreign else [])]
        out = self._directory / "audit"
        return SimpleNamespace(**await audit(self.journal_dir, self.store_dirs, out, evidence))


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    """On an event loop of its own, which leaves the thread's current loop as it was."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work)
    work.close()
    raise ConfigError("inside a running event loop use `async with Cluster(…)`")
