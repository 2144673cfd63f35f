"""``python benchmarks/remoting_idle.py``: what idle connections of RocketMQ's clients cost a ``dejamq dev``.

Each connection is a consumer: it says one heartbeat, and nothing more. Measured are the time until all are members, the
memory that the server keeps for them (RssAnon), and the time of a core that they cost while nothing happens.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from typing import Any

import msgspec
from dejamq_lab.cluster.usage import core_seconds, memory_mib
from dejamq_proto.remoting import requests
from dejamq_proto.remoting.frames import FrameReader, encode
from dejamq_proto.remoting.header import Command

AT_ONCE = 200
SPARE = 500
"""Descriptors that a process needs for other things."""
SETTLE_S = 3
Report = dict[str, Any]


class Idle(asyncio.Protocol):
    """One client. ``joined`` is done when its heartbeat was answered."""

    def __init__(self, number: int, groups: int) -> None:
        self._number, self._group = number, f"g{number % groups}"
        self._frames = FrameReader()
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        consumer = {
            "groupName": self._group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": "TBW102", "subString": "*", "expressionType": "TAG", "subVersion": 1}],
        }  # fmt: skip
        beat = {"clientID": f"10.0.0.1@{self._number}", "consumerDataSet": [consumer], "producerDataSet": []}
        body = msgspec.json.encode(beat)
        transport.write(encode(Command(code=requests.HEART_BEAT.code, opaque=1, version=479, body=body)))

    def data_received(self, data: bytes) -> None:
        self._frames.receive(data)
        while (command := self._frames.next_command()) is not None:
            if command.is_answer and not self.joined.done():
                self.joined.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.joined.done():
            self.joined.set_exception(ConnectionError("the server ended the connection"))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1_000, help="the consumers are spread over so many")
    parser.add_argument("--seconds", type=float, default=10, help="of idleness that are measured")
    options = parser.parse_args()
    _allow_descriptors(options.connections + SPARE)
    command = [sys.executable, "-m", "dejamq_lab.dev", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2].rstrip(";")
            report = asyncio.run(_measure(server.pid, address, options))
        finally:
            server.terminate()
    print(msgspec.json.encode(report | {"load_average": os.getloadavg()[0]}).decode())
    return 0


def _allow_descriptors(wanted: int) -> None:
    """For this process and the server, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = max(hard, wanted) if os.geteuid() == 0 else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, wanted), most))


async def _measure(pid: int, address: str, options: argparse.Namespace) -> Report:
    await asyncio.sleep(SETTLE_S)
    before_mib, began_s = memory_mib(pid), time.monotonic()
    host, _, port = address.rpartition(":")
    clients: list[Idle] = []
    loop, few = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)

    async def join(number: int) -> None:
        async with few:
            _, client = await loop.create_connection(lambda: Idle(number, options.groups), host, int(port))
            clients.append(client)
            await client.joined

    await asyncio.gather(*map(join, range(options.connections)))
    joined_s = time.monotonic() - began_s
    await asyncio.sleep(SETTLE_S)
    idle_from = core_seconds(pid), time.monotonic()
    await asyncio.sleep(options.seconds)
    core = (core_seconds(pid) - idle_from[0]) / (time.monotonic() - idle_from[1])
    kept_mib = memory_mib(pid) - before_mib
    return {
        "connections": options.connections, "groups": options.groups, "joined_s": round(joined_s, 1),
        "lost": sum(client.lost for client in clients), "before_mib": round(before_mib, 1),
        "kib_per_connection": round(kept_mib * 1024 / options.connections, 1),
        "idle_core_percent": round(100 * core, 2),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
