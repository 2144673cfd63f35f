"""A peer: servers as processes in a temporary folder, on free ports of the loopback, ended by their process ids."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from dejamq_proto.codes import ConfigError

from dejamq_lab.bench.client.process import python_client
from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.client.target import Target
from dejamq_lab.cluster.die_with_parent import tie
from dejamq_lab.cluster.plan import LOOPBACK
from dejamq_lab.cluster.ports import held_ports
from dejamq_lab.cluster.waiting import until
from dejamq_lab.errors import ClusterFailed

START_S, STOP_S = 60, 10


class Peer:
    """One kind of peer. A subclass says what it needs and how it is started, in ``start``."""

    name: ClassVar[str]
    program: ClassVar[tuple[str, str]]
    """(command, package of a distribution that has it)."""
    library: ClassVar[str] = ""
    """The module of its Python client, of the extra ``bench``."""
    modes: ClassVar[frozenset[str]] = frozenset({"submit", "single"})
    sync_flush: ClassVar[bool] = False
    durability: ClassVar[str]
    """The promise of an answer, with asynchronous flush where there is a choice."""

    def __init__(self, folder: Path, load: Load) -> None:
        """Raises ConfigError for a load that this peer does not know."""
        if load.mode not in self.modes:
            raise ConfigError(f"{self.name} is measured with {', '.join(sorted(self.modes))}, not with {load.mode}")
        if load.flush_mode == "sync" and not self.sync_flush:
            raise ConfigError(f"{self.name} has no way to answer only when the disk has it: leave --flush-mode async")
        self.folder, self.load = folder, load
        self.processes: list[subprocess.Popen[bytes]] = []
        self._holding = ExitStack()

    @classmethod
    def absence(cls) -> str | None:
        """Why it cannot be measured here, with what to install; None when it can."""
        command, package = cls.program
        if shutil.which(command, path=search_path()) is None:
            return f"{cls.name}: {command} is not on the PATH: install the package {package}"
        if cls.library and importlib.util.find_spec(cls.library) is None:
            return f"{cls.name}: its Python client is not installed: pip install 'dejamq[bench]'"
        return None

    async def start(self) -> str:
        """Start the servers and return the address for clients. Raises ClusterFailed, Missing."""
        raise NotImplementedError

    def client(self) -> list[str]:
        """The command of a client process."""
        return python_client(self.name)

    def target(self, address: str) -> Target:
        about = {"peer": self.name, "durability": self.durability}
        pids = [process.pid for process in self.processes]
        return Target(address, self.client(), about, pids, directory=str(self.folder), drops=bool(self.library))

    def held_ports(self, count: int) -> list[int]:
        """That many free ports, which nobody else gets until ``stop``."""
        return self._holding.enter_context(held_ports(count))

    def spawn(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Path:
        """Start one process and return the file with what it says. It is killed when this process ends."""
        log = self.folder / f"server-{len(self.processes)}.out"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                env=os.environ | {"PATH": search_path()} | dict(environment or {}), start_new_session=True,
                preexec_fn=tie,
            )  # fmt: skip
        self.processes.append(process)
        return log

    async def listening(self, port: int, log: Path) -> str:
        """Wait until the process spawned last accepts connections; the address. Raises ClusterFailed."""
        process = self.processes[-1]
        await until(lambda: process.poll() is not None or _accepts(port), START_S)
        if not _accepts(port):
            raise self.failed(log)
        return f"{LOOPBACK}:{port}"

    def failed(self, log: Path) -> ClusterFailed:
        lines = log.read_text("utf-8", "replace").strip().splitlines() or ["it said nothing"]
        return ClusterFailed(f"{self.name} did not start: {lines[-1]}")

    async def stop(self) -> None:
        """End what was started, the last first."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        await until(lambda: all(process.poll() is not None for process in self.processes), STOP_S)
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._holding.close()


def search_path() -> str:
    """Distributions put servers where a plain user's PATH does not look."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


def _accepts(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((LOOPBACK, port)) == 0
