"""A real RocketMQ as processes: its jars, its name server and one broker on a store directory."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dejamq_lab.jars import fetched
from dejamq_lab.tied import tie

POM = Path(__file__).with_name("rocketmq.xml")
VERSION = "5.3.3"
BROKER = "broker-a"
START_S, STOP_S = 90, 60
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


def free_block() -> int:
    """A port whose neighbours, two below and one above, are free too: a broker takes all of them."""
    for _ in range(100):
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
        try:
            for near in (port - 2, port, port + 1):
                with socket.socket() as held:
                    held.bind(("127.0.0.1", near))
        except OSError:
            continue
        return port
    raise Failed("no free ports on 127.0.0.1")


class RocketMQ:
    """A name server and one broker on ``store``, ready inside of the ``with``; both are ended with it."""

    def __init__(self, jars: Path, store: Path, work: Path, settings: Mapping[str, object], heap: str = "512m") -> None:
        """``settings`` are lines of broker.conf; logs and what else it writes go to ``work``."""
        self._jars, self._store, self._work, self._settings = jars, store, work, settings
        self._heap = heap
        self._processes: list[subprocess.Popen[bytes]] = []
        self.namesrv = f"127.0.0.1:{free_block()}"

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        try:
            self._start_namesrv()
            self._start_broker()
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
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", conf, "boot success")

    def _start_broker(self) -> None:
        conf = self._conf("broker", {
            "brokerClusterName": "DefaultCluster", "brokerName": BROKER, "brokerId": 0, "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1", "listenPort": free_block(), "namesrvAddr": self.namesrv,
            "storePathRootDir": self._store, "storePathCommitLog": self._store / "commitlog",
            "timerWheelEnable": "false", "fileReservedTime": 100_000, "diskMaxUsedSpaceRatio": 99,
        } | dict(self._settings))  # fmt: skip
        self._start("broker", "org.apache.rocketmq.broker.BrokerStartup", conf, "boot success")

    def _conf(self, name: str, settings: Mapping[str, object]) -> Path:
        path = self._work / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def java(self, heap: str) -> list[str]:
        """The command of a JVM with the jars, without what it runs."""
        return [
            "java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=256m", *MODULES,
            f"-Duser.home={self._work}", f"-Drocketmq.home.dir={self._work}", "-Djava.net.preferIPv4Stack=true",
            "-cp", f"{self._jars}/*",
        ]  # fmt: skip

    def _start(self, name: str, main: str, conf: Path, word: str) -> None:
        log = self._work / f"{name}.out"
        environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.java(self._heap), main, "-c", str(conf)], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment | {"ROCKETMQ_HOME": str(self._work)}, start_new_session=True,
                preexec_fn=tie,
            )  # fmt: skip
        self._processes.append(process)
        deadline = time.monotonic() + START_S
        while word not in log.read_text("utf-8", "replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"RocketMQ's {name} did not start: {log.read_text('utf-8', 'replace')[-2000:]}")
            time.sleep(0.1)

    def _end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
