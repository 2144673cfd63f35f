"""A broker with many topics, queues and groups: filled, stopped, started again, asked; with what that took.

Servers are processes of their own with RocketMQ's default file sizes. What takes how long is told and not judged here:
the proof has limits for a machine that does nothing else, the test for memory only.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run
from dejamq import Admin
from dejamq_lab.cluster.usage import core_seconds, memory_mib
from dejamq_proto import client_pb2
from dejamq_proto.common_pb2 import QueueKey

QUEUES = 4
TOPICS_OF_A_GROUP = 5
RUN = 500
PULLED = 8
DEADLINE_S = 60


@dataclass
class Answers:
    """How long one kind of question took, ms."""

    times_ms: list[float] = field(default_factory=list)

    def at(self, share: float) -> float:
        return sorted(self.times_ms)[min(len(self.times_ms) - 1, int(len(self.times_ms) * share))]

    def __str__(self) -> str:
        return f"p50 {self.at(0.5):.1f} p99 {self.at(0.99):.1f} max {max(self.times_ms):.1f} ms"


@dataclass
class Told:
    """What a run showed. Memory is of the broker after it was asked everything, MiB."""

    topics: int
    groups: int
    messages: int
    """In each queue."""
    empty_start_s: float = 0.0
    """Of a broker without anything: what the machine can do now."""
    start_s: float = 0.0
    start_cpu_s: float = 0.0
    start_after_kill_s: float = 0.0
    start_after_kill_cpu_s: float = 0.0
    answers: dict[str, Answers] = field(default_factory=dict)
    resident_mib: float = 0.0
    own_mib: float = 0.0
    filled_mib: float = 0.0
    """Its own, when it had just got all messages."""
    descriptors: int = 0

    def lines(self) -> list[str]:
        return [
            f"{self.topics} topics with {QUEUES} queues of {self.messages} messages, {self.groups} groups",
            f"an empty broker starts in {self.empty_start_s:.2f} s",
            f"start {self.start_s:.2f} s ({self.start_cpu_s:.2f} s of processor), after SIGKILL "
            f"{self.start_after_kill_s:.2f} s ({self.start_after_kill_cpu_s:.2f} s)",
            *(f"{name}: {answers}" for name, answers in self.answers.items()),
            f"memory {self.resident_mib:.0f} MiB, {self.own_mib:.0f} of it its own "
            f"(after it got the messages {self.filled_mib:.0f}); {self.descriptors} descriptors",
        ]


class Server:
    """One process of ours."""

    def __init__(self, module: str, directory: Path, *flags: str) -> None:
        self._command = [sys.executable, "-m", module, "--listen", "127.0.0.1:0", *flags]
        self._directory, self.address = directory, ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Until it says that it is ready; seconds."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEJAMQ_")}
        began = time.monotonic()
        with (self._directory / "errors.txt").open("a") as errors:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("ready "), (self._directory / "errors.txt").read_text()[-2000:]
        self.address = line.split()[-1]
        return time.monotonic() - began

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(DEADLINE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def status(self, name: str) -> float:
        """A line of the kernel's account of the process, in MiB."""
        assert self._process is not None
        return memory_mib(self._process.pid, name)

    @property
    def cpu_s(self) -> float:
        assert self._process is not None
        return core_seconds(self._process.pid)

    @property
    def descriptors(self) -> int:
        assert self._process is not None
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))


async def scraped(log: str, told: Told) -> Answers:
    """The page for Prometheus, from where the log says that it is served."""
    (*_, address) = re.findall(r"event=metrics_served address=(\S+)", log)
    answers = Answers()
    for _ in range(5):
        began = time.monotonic()
        page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{address}/metrics").read())
        answers.times_ms.append((time.monotonic() - began) * 1000)
        lags = page.count(b"\nrocketmq_consumer_lag_messages{")
        assert lags == told.groups * min(TOPICS_OF_A_GROUP, told.topics), lags
    return answers


def topic(number: int) -> str:
    return f"topic-{number:04d}"


async def scaled(directory: Path, *, topics: int, groups: int, messages: int) -> Told:
    """One run in this directory."""
    told = Told(topics, groups, messages)
    namesrv = Server("dejamq_namesrv", directory)
    namesrv.start()
    broker = Server(
        "dejamq_broker", directory, "--namesrv", namesrv.address, "--store", str(directory / "store"),
        "--metrics", "127.0.0.1:0",
    )  # fmt: skip
    empty = Server("dejamq_broker", directory, "--namesrv", namesrv.address, "--store", str(directory / "empty"))
    try:
        told.empty_start_s = await asyncio.to_thread(empty.start)
        empty.stop()
        await asyncio.to_thread(broker.start)
        await filled(broker.address, namesrv.address, told)
        told.filled_mib = broker.status("RssAnon")
        broker.stop()
        told.start_s = await asyncio.to_thread(broker.start)
        told.start_cpu_s = broker.cpu_s
        broker.stop(signal.SIGKILL)
        told.start_after_kill_s = await asyncio.to_thread(broker.start)
        told.start_after_kill_cpu_s = broker.cpu_s
        told.answers = await asked(broker.address, namesrv.address, told)
        told.answers["metrics"] = await scraped((directory / "errors.txt").read_text(), told)
        told.resident_mib, told.own_mib = broker.status("VmRSS"), broker.status("RssAnon")
        told.descriptors = broker.descriptors
    finally:
        empty.stop()
        broker.stop()
        namesrv.stop()
    return told


async def filled(address: str, namesrv: str, told: Told) -> None:
    """Topics with messages in each queue, groups that have consumed half of some topics and then went away."""
    topics, groups = told.topics, told.groups
    async with Admin(namesrv) as admin, Wire(address) as wire:
        for number in range(topics):
            await admin.create_topic(topic(number), queues=QUEUES)
            for queue_id in range(QUEUES):
                for first in range(0, told.messages, RUN):
                    bodies = [b"x" * 100] * min(RUN, told.messages - first)
                    answer = await wire.send(a_run(topic(number), bodies, queue_id=queue_id))
                    assert answer.code == 0, answer.remark
        stream: Any = wire.client.ClientChannel(timeout=DEADLINE_S)
        consumers = [
            client_pb2.ConsumerData(group=f"group-{group:04d}", subscriptions=[
                client_pb2.Subscription(topic=one, expression="*", version=1) for one in topics_of(group, topics)
            ])
            for group in range(groups)
        ]  # fmt: skip
        await stream.write(client_pb2.Heartbeat(caller=wire.caller(), consumers=consumers))
        while not (command := await stream.read()).HasField("heartbeat_ack"):
            pass
        assert command.heartbeat_ack.code == 0, command.heartbeat_ack.remark
        await commit(wire, topics, groups, told.messages // 2)
        stream.cancel()


async def commit(wire: Wire, topics: int, groups: int, offset: int) -> None:
    for group in range(groups):
        await asyncio.gather(*(
            wire.call(wire.client.UpdateOffset, client_pb2.UpdateOffsetRequest(
                caller=wire.caller(), group=f"group-{group:04d}", queue=QueueKey(topic=one, queue_id=queue_id),
                offset=offset,
            ))
            for one in topics_of(group, topics)
            for queue_id in range(QUEUES)
        ))  # fmt: skip


def topics_of(group: int, topics: int) -> list[str]:
    return [topic((group * TOPICS_OF_A_GROUP + one) % topics) for one in range(min(TOPICS_OF_A_GROUP, topics))]


async def asked(address: str, namesrv: str, told: Told) -> dict[str, Answers]:
    """What a dashboard asks; every answer is looked at."""
    topics, groups = told.topics, told.groups
    answers = {name: Answers() for name in ("route", "lag of a group", "list of topics", "list of groups", "numbers")}

    async def ask(name: str, question: Callable[[], Awaitable[Any]]) -> Any:
        began = time.monotonic()
        answer = await question()
        answers[name].times_ms.append((time.monotonic() - began) * 1000)
        return answer

    async with Admin(namesrv) as admin, Wire(address) as wire:
        await admin.brokers()
        await admin.topic("warm")
        for number in range(topics):
            routes = await ask("route", partial(admin.routes, topic(number)))
            assert [one.read_queues for one in routes[namesrv]] == [QUEUES]
        for group in range(groups):
            name = f"group-{group:04d}"
            progress = await ask("lag of a group", partial(admin.progress, name))
            assert sum(one.lag for one in progress) == len(progress) * (told.messages - told.messages // 2)
            assert len(progress) == QUEUES * len(topics_of(group, topics))
        for _ in range(5):
            assert len(await ask("list of topics", admin.topics)) >= topics
            assert len(await ask("list of groups", admin.groups)) >= groups
            assert await ask("numbers", lambda: admin.runtime_info("broker-a"))
        for number in range(0, topics, max(1, topics // 50)):
            for queue_id in range(QUEUES):
                pulled = await wire.pull(topic(number), 0, queue_id=queue_id, max_messages=PULLED)
                assert len(pulled.sizes) == PULLED
    return answers
