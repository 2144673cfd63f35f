"""Servers, actors, links and an operator's tool of one run, which a scenario's steps act on."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dejamq_proto.loose_json import loads_loose
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.header import Command
from dejamq_proto.remoting_client import connect

from dejamq_lab.cluster.die_with_parent import tie
from dejamq_lab.machines.jars import jar_cache
from dejamq_lab.machines.rocketmq import MODULES, VERSION, Failed
from dejamq_lab.rocketmq.links import Links
from dejamq_lab.rocketmq.machine import GO_LOG, WAIT_S, Machine
from dejamq_lab.rocketmq.programs import OLD, ClientProgram, client_jars, compiled, go_actor, logging_of
from dejamq_lab.rocketmq.servers import JavaServer, ServerLayout, Servers

TOPIC, GROUP, PRODUCERS = "orders", "billing", "order-service"
TRACE_S = 6
"""A client keeps its traces for up to 5 s."""
OFFSETS_S = 11
"""A broker writes its offsets every 5 s and 10 s."""
READ_WRITE = 6
Tell = Callable[[str], None]


async def _asked(address: str, change: requests.TopicChange) -> Command:
    client = await connect(address, lambda command: None)
    try:
        return await client.ask(requests.UPDATE_TOPIC, change)
    finally:
        await client.close()


class RocketMQStage:
    """Ready inside of the ``with``; all processes end with it."""

    def __init__(self, work: Path, jars: Path, layout: ServerLayout, client: ClientProgram, tell: Tell) -> None:
        self.work, self.servers, self.tell, self.client = work, Servers(jars, work, layout), tell, client
        self._layout = layout
        self._standing = ExitStack()
        self._collecting: list[subprocess.Popen[bytes]] = []
        self.machines: list[Machine] = []
        self.snapshots: list[tuple[int, bytes]] = []

    def __enter__(self) -> Self:
        servers = self.servers
        self._class_path = compiled(client_jars(self.client, servers.jars), self._classes())
        self._go = str(go_actor()) if self.client is ClientProgram.GO else ""
        self.tell(f"start {', '.join(self._layout.brokers)} and {self._layout.namesrvs} name server(s)")
        try:
            self._standing.callback(self._end)
            self._standing.enter_context(servers)
            if self._layout.links:
                brokers = [*servers.brokers.values()]
                self.links = self._standing.enter_context(Links(brokers, self._pids))
        except BaseException:
            self._standing.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._standing.close()

    # actors

    def consumer(
        self, name: str, *options: str, group: str = GROUP, topic: str = TOPIC, namesrv: str = "",
        java: Sequence[str] = (), wait: bool = True,
    ) -> Machine:  # fmt: skip
        """A member of the group, of the run's own client, which has begun."""
        if self.client is ClientProgram.GO:
            return self._go_consumer(name, options)
        return self._begun(self._actor(name, "consume", topic, group, *options, namesrv=namesrv, java=java), wait=wait)

    def reader(self, name: str, *options: str) -> Machine:
        """A member that assigns all queues to itself."""
        return self._begun(self._actor(name, "assign", TOPIC, GROUP, *options), wait=True)

    def producer(self, count: int, *options: str, first: int = 0, name: str = "orders-1") -> Machine:
        """It sends the keys order-FIRST and so on; ``options`` of what it does beside that."""
        return self._actor(name, "produce", TOPIC, PRODUCERS, first, count, "keep=6000", *options)

    def send(self, count: int, *options: str, first: int = 0, name: str = "orders-1") -> Machine:
        """As ``producer``, and wait until it is done and gone."""
        machine = self.producer(count, *options, first=first, name=name)
        machine.wait("end")
        machine.stop()
        return machine

    def _actor(self, name: str, *words: Any, namesrv: str = "", java: Sequence[str] = ()) -> Machine:
        home = self.work / name
        logging = logging_of("client", self.servers.jars, self.work / "logging")
        named = [str(word) for word in words]
        command = [*self._java([logging, *self._class_path], home, *java, "Actor"), named[0]]
        return self._launched(name, [*command, namesrv or self.servers.namesrv, *named[1:]])

    def _go_consumer(self, name: str, options: Sequence[str]) -> Machine:
        log = str(self.work / name / GO_LOG)
        return self._begun(
            self._launched(name, [self._go, "consume", self.servers.namesrv, TOPIC, GROUP, log, *options]), wait=True
        )

    def _launched(self, name: str, command: list[str]) -> Machine:
        self.tell(f"start {name}")
        machine = Machine(name, self.work / name, command)
        self.machines.append(machine)
        return machine

    def _begun(self, machine: Machine, *, wait: bool) -> Machine:
        if wait:
            machine.wait("ready")
        return machine

    # what happens to them

    def sleep(self, seconds: float, why: str) -> None:
        """RocketMQ's intervals take their time."""
        self.tell(f"wait {seconds:g} s: {why}")
        time.sleep(seconds)

    def traces(self) -> None:
        """Wait until the clients have sent what they traced."""
        self.sleep(TRACE_S, "clients send their traces every 5 s")

    def until(self, holds: Callable[[], bool], what: str, within: float = WAIT_S) -> None:
        """Raises Failed."""
        deadline = time.monotonic() + within
        while not holds():
            if time.monotonic() > deadline:
                raise Failed(f"within {within:g} s it did not come to this: {what}")
            time.sleep(0.1)

    def told(self, log: Path, words: str) -> Callable[[], bool]:
        """Whether a server's log has these words by then, more often than now."""

        def count() -> int:
            return log.read_text(errors="replace").count(words) if log.exists() else 0

        before = count()
        return lambda: count() > before

    # what a broker has

    def offsets(self, broker: JavaServer | None = None) -> dict[int, int]:
        """The group's offsets by queue, as the broker's file has them now."""
        file = (broker or self.servers.broker).store / "config" / "consumerOffset.json"
        try:
            table = loads_loose(file.read_text())["offsetTable"] if file.exists() else {}
        except ValueError:  # it is being written
            table = {}
        return {int(queue): offset for queue, offset in table.get(f"{TOPIC}@{GROUP}", {}).items()}

    def wait_for_offsets(self, done: int) -> None:
        """Until the broker has written that the group has done so many messages."""
        self.until(lambda: sum(self.offsets().values()) == done, f"the broker's file says that {done} are done")

    def snapshot(self) -> None:
        """Keep the broker's file of offsets as it is now."""
        file = self.servers.broker.store / "config" / "consumerOffset.json"
        self.snapshots.append((time.time_ns() // 1_000_000, file.read_bytes() if file.exists() else b""))

    # an operator

    def admin(self, command: str) -> str:
        """What RocketMQ's mqadmin says."""
        self.tell(f"mqadmin {command}")
        java = self._java([self.servers.jars / "*"], self.work / "admin")
        words = [*java, "org.apache.rocketmq.tools.command.MQAdminStartup", *command.split()]
        ran = subprocess.run(
            [*words, "-n", self.servers.namesrv], stdin=subprocess.DEVNULL, capture_output=True, timeout=WAIT_S,
            check=False, preexec_fn=tie,
        )  # fmt: skip
        return ran.stdout.decode(errors="replace")

    def topic(self, queues: int = 2) -> None:
        """Make the topic, with so many queues at each broker, as mqadmin's updateTopic does. Raises Failed."""
        change = requests.TopicChange(TOPIC, queues, queues, READ_WRITE, "TBW102", "SINGLE_TAG", 0)
        for broker in self.servers.brokers.values():
            answer = asyncio.run(_asked(broker.address, change))
            if answer.code:
                raise Failed(f"{broker.name} does not make the topic: {answer.remark}")

    def collect(self, interval_s: float = 1) -> None:
        """``dejamq collect`` from now on."""
        self.tell("dejamq collect")
        command = [sys.executable, "-m", "dejamq_cli", "collect", "--namesrv", self.servers.namesrv]
        command += [
            "--out",
            str(self.collected),
            "--interval",
            str(interval_s),
            "--group",
            GROUP,
            "--trace-from",
            "end",
        ]
        self._collecting.append(subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=tie,
        ))  # fmt: skip

    @property
    def collected(self) -> Path:
        """Where the polled evidence is."""
        return self.work / "collected"

    def close(self) -> None:
        """Stop what collects, then the brokers, in order."""
        self.sleep(OFFSETS_S, "brokers write their offsets")
        for process in self._collecting:
            process.terminate()
            process.wait(WAIT_S)
        for server in self.servers.brokers.values():
            server.stop()

    def _java(self, class_path: list[Path], home: Path, *arguments: str) -> list[str]:
        """Options of Java and what follows as a command; logs go to the folder ``home``."""
        return [
            "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *MODULES, f"-Duser.home={home}",
            "-Djava.net.preferIPv4Stack=true", f"-Drocketmq.client.logRoot={home}", "-cp",
            os.pathsep.join(map(str, class_path)), *arguments,
        ]  # fmt: skip

    def _classes(self) -> Path:
        if self.client is ClientProgram.JAVA_OLD:
            return jar_cache("rocketmq-actor", OLD)
        fetched = self.servers.jars == jar_cache("rocketmq", VERSION)
        return jar_cache("rocketmq-actor", VERSION) if fetched else self.work / "classes"

    def _pids(self) -> Mapping[int, str]:
        return {machine.pid: machine.name for machine in self.machines}

    def _end(self) -> None:
        for process in self._collecting:
            process.kill()
            process.wait()
        for machine in self.machines:
            machine.end()
