"""Real processes under attack, and what can be seen of them from outside: memory, descriptors, tasks, log."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from broker_wire import until
from dejamq_lab.cluster.usage import memory_mib

WATCHED = Path(__file__).with_name("hostile_watched.py")
CRASHES = ("Traceback", "Unexpected", "exception was never retrieved", "Exception in", "Fatal")
SMALL = (
    "mapped_file_size_commit_log=67108864", "disk_check_enable=false", "max_message_size=4194304",
    "max_hash_slot_num=50021", "max_index_num=200000",
)  # fmt: skip
METRICS = "metrics_listen=127.0.0.1:0"
READY_S = 120


class Process:
    """A server process with its output in files."""

    listens: tuple[str, ...] = ("--listen", "127.0.0.1:0")

    def __init__(self, directory: Path, module: str, *flags: str) -> None:
        directory.mkdir(parents=True)
        self.directory, self.out, self.err = directory, directory / "out", directory / "err"
        self._told = directory / "told"
        command = [sys.executable, str(WATCHED), str(self._told), module, *self.listens, *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.popen = subprocess.Popen(command, stdout=out, stderr=err, cwd=directory)

    async def ready(self) -> str:
        return (await self.said(" ")).split()[-1]

    async def said(self, words: str) -> str:
        """All that it has written, once these words are among it."""
        await until(lambda: words in self.out.read_text() or self.popen.poll() is not None, READY_S)
        assert self.popen.poll() is None, self.err.read_text()
        return self.out.read_text()

    def resident_mib(self) -> float:
        """What it has in memory now, without its mapped files: those are the disk's cache."""
        return memory_mib(self.popen.pid)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))

    def sockets(self) -> int:
        """Descriptors that are connections or listeners."""
        return sum("socket:" in _link(f"/proc/{self.popen.pid}/fd/{one}") for one in
                   os.listdir(f"/proc/{self.popen.pid}/fd"))  # fmt: skip

    async def told(self) -> dict[str, Any]:
        """What the process says of itself: tasks, objects, bytes of the heap."""
        self._told.unlink(missing_ok=True)
        self.popen.send_signal(signal.SIGUSR1)
        await until(self._told.exists, READY_S)
        found: dict[str, Any] = json.loads(self._told.read_text())
        return found

    async def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.popen.wait, 120)

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def start_servers(directory: Path) -> tuple[Process, Process]:
    """A name server and a broker that knows none, so that nobody but the attacker speaks to either."""
    settings = [part for one in SMALL for part in ("--set", one)]
    broker = Process(
        directory / "broker", "dejamq_broker", "--namesrv", "", "--store", "store", "--journal-dir", "journal",
        "--set", "enable_property_filter=true", *settings, "--set", METRICS,
    )  # fmt: skip
    return broker, Process(directory / "namesrv", "dejamq_namesrv", "--set", METRICS)


def metrics_of(process: Process) -> str:
    """Where a server of ``start_servers`` serves ``/metrics``, once it is ready."""
    (found,) = re.findall(r"event=metrics_served address=(\S+)", process.err.read_text(errors="replace"))
    return str(found)


class Dev(Process):
    """``dejamq dev --control``: the pages are in this process, the server under test in a child."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "dejamq_lab.dev", "--control", "127.0.0.1:0", "--store", "store")

    async def ready(self) -> str:
        """The address of the server under test."""
        return (await self.said("control http://")).partition("ready dev ")[2].partition(";")[0]

    async def control(self) -> str:
        return (await self.said("control http://")).rpartition("control http://")[2].strip()


class Pages(Process):
    """``dejamq console`` of this cluster."""

    listens = ("console", "--listen", "127.0.0.1:0")

    def __init__(self, directory: Path, cluster: str, *flags: str) -> None:
        super().__init__(directory, "dejamq_cli", "--namesrv", cluster, *flags)

    async def ready(self) -> str:
        return (await self.said("http://")).rpartition("http://")[2].split("/")[0]


class Servers(NamedTuple):
    """All that have doors."""

    broker: Process
    namesrv: Process
    dev: Dev
    console: Pages

    @classmethod
    async def start(cls, directory: Path) -> "Servers":
        broker, namesrv = start_servers(directory)
        dev = Dev(directory / "dev")
        console = Pages(directory / "console", await dev.ready())
        await console.ready()
        return cls(broker, namesrv, dev, console)

    def kill(self) -> None:
        for process in self:
            process.kill()


def log_faults(process: Process) -> list[str]:
    """Lines of its log that no input may cause."""
    lines = process.err.read_text(errors="replace").splitlines()
    return [line for line in lines if any(sign in line for sign in CRASHES)]
