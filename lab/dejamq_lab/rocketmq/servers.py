"""The servers of one run: name servers and brokers as processes, each with a home of its own, struck by signals."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from dejamq_lab.cluster.plan import LOOPBACK
from dejamq_lab.cluster.ports import held_block
from dejamq_lab.machines.rocketmq import STOP_S, Failed, launched, server_java, wait_for_boot, wait_for_brokers
from dejamq_lab.rocketmq.programs import logging_of

CLUSTER = "DefaultCluster"
LINKED = "127.0.0.2"
"""Where relays listen: brokers say that they are there, at their own ports."""
HEAPS = {"namesrv": "256m", "broker": "512m"}
MAINS = {
    "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
    "broker": "org.apache.rocketmq.broker.BrokerStartup",
}
SETTINGS: Mapping[str, object] = {
    "traceTopicEnable": "true", "defaultTopicQueueNums": 2, "mappedFileSizeCommitLog": 8 << 20,
    "mappedFileSizeConsumeQueue": 60_000, "maxHashSlotNum": 4999, "maxIndexNum": 20_000, "timerWheelEnable": "false",
    "fileReservedTime": 100_000, "diskMaxUsedSpaceRatio": 99,
}  # fmt: skip
"""Of every broker: with traces, and with small files."""


@dataclass(frozen=True)
class ServerLayout:
    """Which servers there are. ``settings`` are lines of broker.conf of all brokers, ``of`` of one of them, which its
    name tells. ``unknown``: brokers that do not know a name server. ``options`` are those of each broker's JVM.
    """

    brokers: Sequence[str] = ("broker-a",)
    namesrvs: int = 1
    links: bool = False
    settings: Mapping[str, object] = field(default_factory=dict)
    of: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()


class JavaServer:
    """One process. Its store and its logs stay where they are when it is started again."""

    def __init__(self, role: str, name: str, home: Path, jars: Path, port: int, options: Sequence[str]) -> None:
        self.role, self.name, self.home, self.port = role, name, home, port
        self._jars, self._options = jars, options
        self._settings: Mapping[str, object] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def store(self) -> Path:
        return self.home / "store"

    def log(self, name: str) -> Path:
        """One of its log files."""
        return self.home / "logs" / "rocketmqlogs" / name

    def launch(self, settings: Mapping[str, object]) -> None:
        """Without waiting until it serves."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._settings = settings
        conf = self.home / f"{self.role}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        logging = logging_of(self.role, self._jars, self.home / "logging")
        class_path = os.pathsep.join((str(logging), f"{self._jars}/*"))
        java = server_java(self.home, HEAPS[self.role], class_path, *self._options)
        self._process = launched([*java, MAINS[self.role], "-c", str(conf)], self.home, self._out)

    def ready(self) -> None:
        """Wait until it serves. Raises Failed."""
        wait_for_boot(f"RocketMQ's {self.name}", self._running, self._out)

    def again(self, **settings: object) -> None:
        """Start it once more as it was, with other ``settings`` where they are named, and wait until it serves."""
        self.launch({**self._settings, **settings})
        self.ready()

    def kill(self) -> None:
        """SIGKILL."""
        self._running.kill()
        self._running.wait()

    def stop(self) -> None:
        """SIGTERM, and wait: a broker writes its offsets and flushes. Raises Failed."""
        self._running.terminate()
        try:
            self._running.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"RocketMQ's {self.name} did not stop within {STOP_S} s") from None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It stands still inside of the ``with``."""
        self._running.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._running.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """At once, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise Failed(f"{self.name} was not started")
        return self._process

    @property
    def _out(self) -> Path:
        return self.home / f"{self.role}.out"


class Servers:
    """All servers of a run, ready inside of the ``with`` and ended with it."""

    def __init__(self, jars: Path, work: Path, layout: ServerLayout) -> None:
        self.jars, self._work, self._layout = jars, work, layout
        self._ports = ExitStack()
        self.namesrvs: list[JavaServer] = []
        self.brokers: dict[str, JavaServer] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def namesrv(self) -> str:
        """The address of the last name server, which knows every broker."""
        return self.namesrvs[-1].address

    @property
    def broker(self) -> JavaServer:
        """The first one."""
        return next(iter(self.brokers.values()))

    def _start(self) -> None:
        names = [f"namesrv-{number + 1}" for number in range(self._layout.namesrvs)]
        self.namesrvs = [self._server("namesrv", name, ()) for name in names]
        for server in self.namesrvs:
            server.launch({
                "listenPort": server.port, "bindAddress": LOOPBACK, "kvConfigPath": server.home / "kvConfig.json",
                "configStorePath": server.home / "namesrv.properties",
            })  # fmt: skip
        for server in self.namesrvs:
            server.ready()
        for name in self._layout.brokers:
            self.brokers[name] = self._server("broker", name, self._layout.options)
            self.brokers[name].launch(self._settings(self.brokers[name]))
        for server in self.brokers.values():
            server.ready()
        for server in self.namesrvs:  # a topic is made at the brokers that are known
            hidden = {name for name, namesrv in self._layout.unknown.items() if namesrv == server.name}
            wait_for_brokers(server.address, self.brokers.keys() - hidden)

    def _server(self, role: str, name: str, options: Sequence[str]) -> JavaServer:
        port = self._ports.enter_context(held_block(2, 1))  # a broker also takes the ports two below and one above
        return JavaServer(role, name, self._work / name, self.jars, port, options)

    def _settings(self, broker: JavaServer) -> dict[str, object]:
        known = [one.address for one in self.namesrvs if self._layout.unknown.get(broker.name) != one.name]
        named = {
            "brokerClusterName": CLUSTER, "brokerName": broker.name, "brokerId": 0, "bindAddress": LOOPBACK,
            "brokerIP1": LINKED if self._layout.links else LOOPBACK, "brokerIP2": LOOPBACK, "listenPort": broker.port,
            "namesrvAddr": ";".join(known), "storePathRootDir": broker.store,
            "storePathCommitLog": broker.store / "commitlog",
        }  # fmt: skip
        return {**named, **SETTINGS, **self._layout.settings, **self._layout.of.get(broker.name, {})}

    def _end(self) -> None:
        for server in (*self.brokers.values(), *self.namesrvs):
            server.end()
        self._ports.close()
