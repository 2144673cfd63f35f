"""A broker with many connections, topics and groups: what each of them costs, for `make prove`.

Servers and clients are processes of their own. Nothing is judged here.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run
from dejamq import Admin
from dejamq_proto import client_pb2, namesrv_pb2, namesrv_pb2_grpc
from dejamq_proto.common_pb2 import QueueKey
from dejamq_proto.remoting import requests
from dejamq_proto.serving.server import GRPC_BELOW
from dejamq_proto.wire.calling import dial
from many_clients import group_name, topic, topics_of
from remoting_wire import remoting
from scale import DEADLINE_S, QUEUES, Answers, Server

HOSTS = 8
PROCESSES = 2
"""Of each kind of clients."""
CREATED_AT_A_TIME = 16
SMALL_FILES = "--set=mappedFileSizeConsumeQueue=20000"


@dataclass
class Told:
    """What a run showed. Memory is the broker's own, MiB."""

    connections: dict[str, int]
    topics: int
    groups: int
    own_mib: dict[str, float] = field(default_factory=dict)
    """By what had just come: ``empty``, ``topics``, ``groups``, each kind of connections, ``closed``."""
    namesrv_mib: dict[str, float] = field(default_factory=dict)
    empty_start_s: float = 0.0
    """Of a broker without anything: what the machine can do now."""
    restart_s: float = 0.0
    restart_cpu_s: float = 0.0
    connect_s: dict[str, float] = field(default_factory=dict)
    connect_cpu_s: dict[str, float] = field(default_factory=dict)
    beat_cpu_s: dict[str, float] = field(default_factory=dict)
    """The broker's processor for one heartbeat of each connection of a kind."""
    routes: dict[str, Answers] = field(default_factory=dict)
    descriptors: dict[str, int] = field(default_factory=dict)
    close_cpu_s: float = 0.0
    load: float = 0.0

    @property
    def highest_mib(self) -> float:
        return max(self.own_mib.values())

    def lines(self) -> list[str]:
        total = sum(self.connections.values())
        lines = [
            f"{total} connections ({', '.join(f'{n} {kind}' for kind, n in self.connections.items())}), {self.topics} "
            f"topics of {QUEUES} queues, {self.groups} groups; load {self.load:.1f}",
            f"restart with them in the store {self.restart_s:.1f} s ({self.restart_cpu_s:.1f} s of processor); an "
            f"empty broker starts in {self.empty_start_s:.1f} s",
            "broker's own memory, MiB: " + ", ".join(f"{name} {mib:.0f}" for name, mib in self.own_mib.items()),
            "name server's, MiB: " + ", ".join(f"{name} {mib:.0f}" for name, mib in self.namesrv_mib.items()),
            f"descriptors of the broker: {self.descriptors}",
            f"the end of all connections took {self.close_cpu_s:.1f} s of processor",
            *(f"routes by {name}: {answers}" for name, answers in self.routes.items()),
        ]
        for kind, number in self.connections.items():
            lines.append(
                f"{kind}: {self.slope_kib(kind):.1f} KiB a connection; connected in {self.connect_s[kind]:.1f} s "
                f"({self.connect_cpu_s[kind] / number * 1e4:.1f} s of processor for 10,000); "
                f"heartbeats {self.beat_cpu_s[kind] / number * 1e4:.2f} s of processor for 10,000"
            )
        if "topics" in self.own_mib:  # else the store was there
            topic, group = self.growth("empty", "topics") / self.topics, self.growth("topics", "groups") / self.groups
            routes = (self.namesrv_mib["topics"] - self.namesrv_mib["empty"]) / self.topics
            lines.append(
                f"{topic * 1024:.1f} KiB a topic, {group * 1024:.1f} KiB a group; name server "
                f"{routes * 1024:.1f} KiB a topic"
            )
        return lines

    def growth(self, before: str, after: str) -> float:
        return self.own_mib[after] - self.own_mib[before]

    def slope_kib(self, kind: str) -> float:
        names = list(self.own_mib)
        return self.growth(names[names.index(kind) - 1], kind) * 1024 / self.connections[kind]


class Crowd:
    """A process with many clients."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, str(Path(__file__).with_name("many_clients.py")), *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line == word, f"{line!r} came instead of {word!r}"

    def say(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


async def many(directory: Path, connections: dict[str, int], topics: int, groups: int) -> Told:
    """One run in this directory. A store that is there already is used as it is."""
    told = Told(connections, topics, groups)
    namesrv = Server("dejamq_namesrv", directory)
    namesrv.start()
    store, filled = directory / "store", (directory / "store").exists()
    broker = Server(
        "dejamq_broker", directory, "--namesrv", namesrv.address, "--store", str(store), "--listen", "0.0.0.0:0",
        "--advertise", "127.0.0.1:0", SMALL_FILES,
    )  # fmt: skip
    empty = Server("dejamq_broker", directory, "--namesrv", namesrv.address, "--store", str(directory / "empty"))
    crowds: dict[str, list[Crowd]] = {}
    try:
        told.empty_start_s = await asyncio.to_thread(empty.start)
        empty.stop()
        await asyncio.to_thread(broker.start)
        measure(told, "empty", broker, namesrv)
        if not filled:
            await create_topics(namesrv.address, broker.address, topics)
            measure(told, "topics", broker, namesrv)
            await create_groups(broker.address, topics, groups)
            measure(told, "groups", broker, namesrv)
        broker.stop()
        told.restart_s, told.restart_cpu_s = await asyncio.to_thread(broker.start), broker.cpu_s
        measure(told, "restarted", broker, namesrv)
        await connect(told, crowds, broker, namesrv)
        told.load = os.getloadavg()[0]
        told.routes = await ask_routes(namesrv.address, topics)
        before_s = broker.cpu_s
        await asyncio.to_thread(all_say, [one for some in crowds.values() for one in some], "close", "closed")
        await descriptors_at_most(broker, told.descriptors["restarted"] + 10)
        told.close_cpu_s = broker.cpu_s - before_s
        measure(told, "closed", broker, namesrv)
    finally:
        for some in crowds.values():
            for crowd in some:
                crowd.end()
        empty.stop()
        broker.stop()
        namesrv.stop()
    return told


def measure(told: Told, name: str, broker: Server, namesrv: Server) -> None:
    told.own_mib[name], told.namesrv_mib[name] = broker.status("RssAnon"), namesrv.status("RssAnon")
    told.descriptors[name] = broker.descriptors


async def connect(told: Told, crowds: dict[str, list[Crowd]], broker: Server, namesrv: Server) -> None:
    """All clients of a kind, then of the next; each sends heartbeats when all are there."""
    first = 0
    for kind, number in told.connections.items():
        address = broker.address if kind != "v1" else below(broker.address)
        began_s, cpu_s = time.monotonic(), broker.cpu_s
        shares = shared(number, PROCESSES)
        crowds[kind] = []
        for share in shares:
            crowds[kind].append(Crowd(kind, first, share, told.groups, told.topics, HOSTS, address))
            first += share
        await asyncio.to_thread(all_hear, crowds[kind], "connected")
        told.connect_s[kind], told.connect_cpu_s[kind] = time.monotonic() - began_s, broker.cpu_s - cpu_s
        measure(told, kind, broker, namesrv)
    for kind, some in crowds.items():
        before_s = broker.cpu_s
        await asyncio.to_thread(all_say, some, "beat", "beaten")
        told.beat_cpu_s[kind] = broker.cpu_s - before_s
    measure(told, "heartbeats", broker, namesrv)


def shared(number: int, parts: int) -> list[int]:
    return [number // parts + (one < number % parts) for one in range(parts)]


def below(address: str) -> str:
    """gRPC's own port, which clients of dejamq are told beside the name server's route."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - GRPC_BELOW}"


def all_say(crowds: list[Crowd], word: str, answer: str) -> None:
    for crowd in crowds:
        crowd.say(word)
    all_hear(crowds, answer)


def all_hear(crowds: list[Crowd], word: str) -> None:
    for crowd in crowds:
        crowd.hear(word)


async def create_topics(namesrv: str, broker: str, topics: int) -> None:
    """Each with a message in each queue."""
    left = iter(range(topics))

    async def create(admin: Admin, wire: Wire) -> None:
        for number in left:
            await admin.create_topic(topic(number), queues=QUEUES)
            for queue_id in range(QUEUES):
                answer = await wire.send(a_run(topic(number), [b"x" * 100], queue_id=queue_id))
                assert answer.code == 0, answer.remark

    async with Admin(namesrv) as admin, Wire(broker) as wire:
        await asyncio.gather(*(create(admin, wire) for _ in range(CREATED_AT_A_TIME)))


async def create_groups(broker: str, topics: int, groups: int) -> None:
    """Each joins once, commits for each queue of its topics, and leaves."""
    async with Wire(broker) as wire:
        for first in range(0, groups, 100):
            some = range(first, min(first + 100, groups))
            stream: Any = wire.client.ClientChannel(timeout=DEADLINE_S)
            consumers = [
                client_pb2.ConsumerData(group=group_name(group), subscriptions=[
                    client_pb2.Subscription(topic=one, expression="*", version=1) for one in topics_of(group, topics)
                ])
                for group in some
            ]  # fmt: skip
            await stream.write(client_pb2.Heartbeat(caller=wire.caller(), consumers=consumers))
            while not (command := await stream.read()).HasField("heartbeat_ack"):
                pass
            assert command.heartbeat_ack.code == 0, command.heartbeat_ack.remark
            for group in some:
                keys = [
                    QueueKey(topic=one, queue_id=queue_id)
                    for one in topics_of(group, topics)
                    for queue_id in range(QUEUES)
                ]
                asked = [
                    client_pb2.UpdateOffsetRequest(caller=wire.caller(), group=group_name(group), queue=key, offset=1)
                    for key in keys
                ]
                asked[0].also.extend(asked[1:])
                await wire.call(wire.client.UpdateOffset, asked[0])
            stream.cancel()


async def ask_routes(namesrv: str, topics: int) -> dict[str, Answers]:
    """Of a thousand topics, one after the other, by both protocols."""
    wanted = range(0, topics, max(1, topics // 1000))
    by_grpc, by_remoting = Answers(), Answers()
    channel = dial(namesrv)
    try:
        stub: Any = namesrv_pb2_grpc.NameServerStub(channel)

        async def ask_grpc(name: str) -> None:
            route = await stub.GetRoute(namesrv_pb2.GetRouteRequest(topic=name), timeout=DEADLINE_S)
            assert route.queues[0].read_queue_nums == QUEUES

        await timed(by_grpc, wanted, ask_grpc)
    finally:
        await channel.close(None)
    async with remoting(namesrv) as client:

        async def ask_remoting(name: str) -> None:
            answer = await client.ask(requests.GET_ROUTE, topic=name)
            assert answer.code == 0
            assert b"queueDatas" in answer.body

        await timed(by_remoting, wanted, ask_remoting)
    return {"gRPC": by_grpc, "remoting": by_remoting}


async def timed(answers: Answers, wanted: range, ask: Callable[[str], Awaitable[None]]) -> None:
    await ask(topic(wanted[0]))
    for number in wanted:
        began_s = time.monotonic()
        await ask(topic(number))
        answers.times_ms.append((time.monotonic() - began_s) * 1000)


async def descriptors_at_most(broker: Server, most: int) -> None:
    """Wait for it, and let the measuring that follows say what is left after the deadline."""
    end_s = time.monotonic() + DEADLINE_S
    while broker.descriptors > most and time.monotonic() < end_s:
        await asyncio.sleep(0.1)
