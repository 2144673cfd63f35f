"""A real RocketMQ as processes: its jars, its name server and one broker on a store directory."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from dejamq_proto.remoting import bodies
from dejamq_proto.remoting.frames import FrameReader, encode
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting.requests import GET_CLUSTER_INFO

from dejamq_lab.cluster.die_with_parent import tie
from dejamq_lab.cluster.ports import held_block
from dejamq_lab.machines.jars import fetched

POM = Path(__file__).with_name("rocketmq.xml")
VERSION = "5.3.3"
BROKER = "broker-a"
START_S, STOP_S = 90, 60
BOOTED = "boot success"
MODULES = [
    f"--add-{how}=java.base/{package}=ALL-UNNAMED"
    for how in ("opens", "exports")
    for package in ("sun.nio.ch", "java.nio", "java.lang", "jdk.internal.ref", "sun.security.util")
]


class Failed(Exception):
    """RocketMQ did not start, stop or answer."""


def fetched_jars(folder: Path) -> Path:
    """The folder with the jars, filled by Maven if it is not. Raises Missing."""
    return fetched(POM, folder, f"rocketmq-broker-{VERSION}.jar")


def server_java(home: Path, heap: str, class_path: str, *options: str) -> list[str]:
    """The command of a server's JVM, without what it runs.

    A broker's threads that append keep a direct buffer of 4 MiB each; where these find no memory, pop loses messages.
    """
    return [
        "java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=1g", *MODULES,
        f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-Djava.net.preferIPv4Stack=true", *options,
        "-cp", class_path,
    ]  # fmt: skip


def launched(command: list[str], home: Path, log: Path) -> subprocess.Popen[bytes]:
    """A server that ends with us and writes to ``log``."""
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment | {"ROCKETMQ_HOME": str(home)}, start_new_session=True, preexec_fn=tie,
        )  # fmt: skip


def wait_for_boot(name: str, process: subprocess.Popen[bytes], log: Path, booted: str = BOOTED) -> None:
    """Until the server says that it serves, by the word ``booted``. Raises Failed with its last words."""
    deadline = time.monotonic() + START_S
    while booted not in log.read_text("utf-8", "replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failed(f"{name} did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
        time.sleep(0.1)


def wait_for_brokers(namesrv: str, names: Collection[str]) -> None:
    """Until this name server knows all of these brokers, which serve a moment before that. Raises Failed."""
    deadline = time.monotonic() + START_S
    while unknown := set(names) - _known_brokers(namesrv):
        if time.monotonic() > deadline:
            raise Failed(f"within {START_S} s brokers have not registered at {namesrv}: {', '.join(sorted(unknown))}")
        time.sleep(0.1)


def _known_brokers(namesrv: str) -> set[str]:
    host, _, port = namesrv.rpartition(":")
    reader = FrameReader()
    with socket.create_connection((host, int(port)), timeout=START_S) as connection:
        connection.sendall(encode(Command(code=GET_CLUSTER_INFO.code)))
        while (told := reader.next_command()) is None:
            if not (data := connection.recv(1 << 16)):
                raise Failed(f"{namesrv} does not say which brokers it knows")
            reader.receive(data)
    return set(bodies.read(told.body, bodies.ClusterInfo).broker_addr_table)


class RocketMQ:
    """A name server and one broker on ``store``, ready inside of the ``with``; both are ended with it."""

    def __init__(self, jars: Path, store: Path, work: Path, settings: Mapping[str, object], heap: str = "512m") -> None:
        """``settings`` are lines of broker.conf; logs and what else it writes go to ``work``."""
        self._jars, self._store, self._work, self._settings = jars, store, work, settings
        self._heap = heap
        self._processes: list[subprocess.Popen[bytes]] = []
        self.namesrv = ""
        self._ports = ExitStack()

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        try:
            self.namesrv = f"127.0.0.1:{self._block()}"
            self._start_namesrv()
            self._start_broker()
            wait_for_brokers(self.namesrv, [BROKER])
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def broker_pid(self) -> int:
        return self._processes[-1].pid

    @property
    def pids(self) -> list[int]:
        """Those of the name server and the broker."""
        return [process.pid for process in self._processes]

    def stop(self) -> None:
        """SIGTERM to the broker, and wait: it flushes and removes its ``abort``. Raises Failed."""
        broker = self._processes[-1]
        broker.terminate()
        try:
            broker.wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"RocketMQ did not stop within {STOP_S} s") from None

    def kill(self) -> None:
        """SIGKILL to the broker."""
        self._processes[-1].kill()
        self._processes[-1].wait()

    def _start_namesrv(self) -> None:
        conf = self._conf("namesrv", {
            "listenPort": self.namesrv.rpartition(":")[2], "bindAddress": "127.0.0.1",
            "kvConfigPath": self._work / "kvConfig.json", "configStorePath": self._work / "namesrv.properties",
        })  # fmt: skip
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(conf))

    def _start_broker(self) -> None:
        self._start("broker", "org.apache.rocketmq.broker.BrokerStartup", "-c", str(self._broker_conf()))

    def _broker_conf(self) -> Path:
        return self._conf("broker", {
            "brokerClusterName": "DefaultCluster", "brokerName": BROKER, "brokerId": 0, "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1", "listenPort": self._block(), "namesrvAddr": self.namesrv,
            "storePathRootDir": self._store, "storePathCommitLog": self._store / "commitlog",
            "timerWheelEnable": "false", "fileReservedTime": 100_000, "diskMaxUsedSpaceRatio": 99,
        } | dict(self._settings))  # fmt: skip

    def _block(self) -> int:
        """A broker also takes the ports two below its own and one above. All are held until the end."""
        return self._ports.enter_context(held_block(2, 1))

    def _conf(self, name: str, settings: Mapping[str, object]) -> Path:
        path = self._work / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def java(self, heap: str) -> list[str]:
        """The command of a JVM with the jars, without what it runs."""
        return server_java(self._work, heap, f"{self._jars}/*")

    def _start(self, name: str, *main: str, booted: str = BOOTED) -> None:
        log = self._work / f"{name}.out"
        self._processes.append(launched([*self.java(self._heap), *main], self._work, log))
        wait_for_boot(f"RocketMQ's {name}", self._processes[-1], log, booted)

    def _end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self._ports.close()
