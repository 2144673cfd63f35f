"""Servers as processes of their own: they can be killed, paused and started again."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dejamq_broker.base.config import BrokerConfig
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import failpoints
from dejamq_proto.journal.events import Fault
from dejamq_proto.journal.writer import Journal
from dejamq_proto.serving.server import CANNOT_LISTEN

from dejamq_lab.cluster.plan import as_flags, server_name
from dejamq_lab.cluster.ports import hold, port_of
from dejamq_lab.cluster.waiting import until
from dejamq_lab.errors import ClusterFailed, NotSupported

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20


class ServerProcess:
    """One server process and the faults it can suffer. Every fault is written to the lab's journal, before and after.

    Faults are plain calls: they return when the signal is delivered (``kill``: when the process is gone).
    ``await cluster.ready()`` waits until what was restarted serves again.
    """

    errors: int | None = None
    """The open file for what it says on standard error; None: its log."""

    def __init__(
        self, config: NamesrvConfig | BrokerConfig, directory: Path, journal: Journal, *, tied: bool = True,
        failpoints: bool = False,
    ) -> None:  # fmt: skip
        """``tied``: it is killed when this process ends in whatever way. ``failpoints``: it can be armed."""
        self._failpoints = directory / "failpoints" if failpoints else None
        self._config, self._journal = config, journal
        self._launcher = ("dejamq_lab.cluster.die_with_parent", str(os.getpid())) if tied else ()
        self._log_path = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = self._ending = False
        self.role = "broker" if isinstance(config, BrokerConfig) else "namesrv"
        self.name = server_name(config)
        self.address = ""

    @property
    def pid(self) -> int:
        """0 when it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else 0

    @property
    def state(self) -> str:
        """running, paused or stopped."""
        if not self.pid:
            return "stopped"
        return "paused" if self._paused else "running"

    def spawn(self) -> None:
        """Start the process without waiting; the second time at the address it had."""
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        with self._log_path.open("ab") as log:
            self._process = spawn(self.command(), log.fileno(), self._failpoints, self.errors)
        self._paused = self._ending = False

    def command(self) -> list[str]:
        """The command line."""
        listen = ("--listen", self.address) if self.address else ()
        module = (*self._launcher, f"dejamq_{self.role}")
        return [sys.executable, "-m", *module, *as_flags(self._config), *listen]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, if it runs; no fault."""
        if self._process is not None and self.pid:
            self._process.send_signal(number)

    async def started(self) -> None:
        """Wait for the line that says ready. Raises ClusterFailed with what the process said instead."""
        await until(lambda: not self.pid or self._ready_line(), START_TIMEOUT_S)
        if not self.pid or not self._ready_line():
            raise ClusterFailed(f"{self.name} did not start: {self._last_words()}")

    async def started_anywhere(self) -> None:
        """As ``started``; where another process took the port since it was chosen, at any free port instead."""
        try:
            await self.started()
        except ClusterFailed:
            if self.pid or CANNOT_LISTEN not in self._last_words():
                raise
            self._config = replace(self._config, listen=f"{_host(self._config)}:0")
            self.spawn()
            await self.started()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, nobody is told."""
        self._fault("kill", signal.SIGKILL)
        self._reap()

    def terminate(self) -> None:
        """SIGTERM: it drains and ends by itself."""
        self._ending = True
        self._fault("terminate", signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and says nothing."""
        self._fault("pause", signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        self._fault("resume", signal.SIGCONT)
        self._paused = False

    def restart(self, broker_id: int | None = None) -> None:
        """Start it again at the same address and on the same store; what still runs is ended first.

        It does not serve yet when this returns: ``await cluster.ready()`` before the next call to it.
        With ``broker_id`` as another replica from now on: 0 makes a slave the master. It keeps its name in the lab.
        """
        self.end()
        if broker_id is not None:
            if not isinstance(self._config, BrokerConfig):
                raise NotSupported(f"{self.name} is no broker, it has no id")
            self._config = replace(self._config, broker_id=broker_id)
        self._note("restart", "begin")
        self.spawn()
        self._note("restart", "end")

    def cut(self, other: object) -> None:
        raise NotSupported("cut: links between the servers cannot be cut yet; pause() the server, or kill() it")

    def heal(self) -> None:
        raise NotSupported("heal: links between the servers cannot be cut yet, so there is nothing to heal")

    def arm(self, name: str, terms: str) -> None:
        """Arm a failpoint (``dejamq_proto.failpoints``); ``off`` disarms it. Raises NotSupported."""
        if self._failpoints is None:
            raise NotSupported(f"{self.name} was started without failpoints")
        failpoints.arm(self._failpoints, name, terms)
        self._note(f"failpoint {name}={terms}", "begin", self.pid)

    def stop(self) -> None:
        """Ask it to end, without waiting; no fault. Asked once only: a second SIGTERM would cut the draining short."""
        if not self.pid:
            return
        if self._paused:
            self.send_signal(signal.SIGCONT)
        if not self._ending:
            self.send_signal(signal.SIGTERM)
            self._ending = True

    def end(self) -> None:
        """``stop`` and wait; SIGKILL when it does not end in time."""
        self.stop()
        self._reap()

    async def ended(self) -> None:
        """As ``end``, without holding up the event loop."""
        self.stop()
        if not await until(lambda: not self.pid, STOP_TIMEOUT_S):
            self.send_signal(signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self._process.wait()

    def _fault(self, kind: str, number: signal.Signals) -> None:
        if not self.pid:
            raise ClusterFailed(f"{kind}: {self.name} does not run; restart() it first")
        pid = self.pid
        self._note(kind, "begin", pid)
        self.send_signal(number)
        self._note(kind, "end", pid)

    def _note(self, kind: str, phase: str, pid: int = 0) -> None:
        self._journal.write(Fault(kind=kind, target=self.name, phase=phase, target_pid=pid))

    def _ready_line(self) -> bool:
        for line in self._said():
            words = line.split()
            if len(words) == 4 and words[:2] == ["ready", self.role]:
                self.address = words[3]
                return True
        return False

    def _said(self) -> list[str]:
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace").splitlines()

    def _last_words(self) -> str:
        said = [line for line in self._said() if line.strip()]
        return said[-1] if said else f"it said nothing within {START_TIMEOUT_S} s; see {self._log_path}"


class ProcessServers:
    """All server processes of a cluster, in order of start. Closing ends every one of them."""

    def __init__(self, directory: Path, journal: Journal, *, failpoints: bool = False) -> None:
        self._directory, self._journal, self._failpoints = directory, journal, failpoints
        self._servers: list[ServerProcess] = []
        self._ports: list[socket.socket] = []

    async def start_namesrv(self, config: NamesrvConfig) -> ServerProcess:
        return await self._start(config, config.name)

    async def start_broker(self, config: BrokerConfig) -> ServerProcess:
        return await self._start(config, server_name(config))

    def make(self, config: NamesrvConfig | BrokerConfig, name: str) -> ServerProcess:
        """A server that is not started. Free ports are held for it: nobody takes them while the server is down.

        A broker's fast port is one of them; else it is the common port - 2, which may be held for another server.
        """
        if config.listen.endswith(":0"):
            host = _host(config)
            config = replace(config, listen=f"{host}:{self._hold(host)}")
            if isinstance(config, BrokerConfig) and not config.fast_port:
                config = replace(config, fast_port=self._hold(host))
        return ServerProcess(config, self._directory / name, self._journal, failpoints=self._failpoints)

    def _hold(self, host: str) -> int:
        self._ports.append(hold(host.strip("[]")))
        return port_of(self._ports[-1])

    async def _start(self, config: NamesrvConfig | BrokerConfig, name: str) -> ServerProcess:
        server = self.make(config, name)
        self._servers.append(server)
        server.spawn()
        await server.started()
        return server

    async def close(self) -> None:
        """Brokers first: they unregister and drain while their name servers still answer."""
        try:
            for role in ("broker", "namesrv"):
                await asyncio.gather(*(server.ended() for server in self._servers if server.role == role))
        finally:
            self._release_ports()

    def kill_all(self) -> None:
        """For an exit that did not close the cluster: leave no process behind."""
        for server in self._servers:
            server.send_signal(signal.SIGKILL)
            server._reap()
        self._release_ports()

    def _release_ports(self) -> None:
        for held in self._ports:
            held.close()


def _host(config: NamesrvConfig | BrokerConfig) -> str:
    return config.listen.rpartition(":")[0]


def spawn(
    command: Sequence[str], output: int, armed: Path | None = None, errors: int | None = None
) -> subprocess.Popen[bytes]:
    """A server in a session of its own, so that Ctrl-C at a terminal reaches the lab only, which then ends it in order.

    The lab's own DEJAMQ_* variables are not for it: its flags say everything.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DEJAMQ_")}
    if armed is not None:
        environment[failpoints.VARIABLE] = f"@{armed}"
    elif failpoints.VARIABLE in os.environ:
        environment[failpoints.VARIABLE] = os.environ[failpoints.VARIABLE]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output if errors is None else errors,
        env=environment, start_new_session=True,
    )  # fmt: skip
