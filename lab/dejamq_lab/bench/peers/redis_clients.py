"""Redis Streams by redis-py with its C parser: XADD in pipelines, XREADGROUP and XACK by the hundred."""

import itertools
from collections.abc import Iterable, Sequence

from redis import Redis

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.bench.client.stopwatch import Gate
from dejamq_lab.bench.peers import client_loops

PIPELINE, READ = 500, 500
GROUP, FIELD = "bench", b"b"
WAIT_MS = 1000


class RedisSender:
    def __init__(self, client: Redis, stream: str) -> None:
        self._client, self._stream = client, stream

    async def send_all(self, bodies: Iterable[bytes]) -> None:
        rest = iter(bodies)
        while part := list(itertools.islice(rest, PIPELINE)):
            pipeline = self._client.pipeline(transaction=False)
            for body in part:
                pipeline.xadd(self._stream, {FIELD: body})
            pipeline.execute()

    async def send(self, body: bytes) -> None:
        self._client.xadd(self._stream, {FIELD: body})


class RedisReceiver:
    def __init__(self, client: Redis, stream: str) -> None:
        self._client, self._stream, self._ids = client, stream, list[bytes]()
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)

    async def receive(self) -> Sequence[bytes]:
        found = self._client.xreadgroup(GROUP, "one", {self._stream: ">"}, count=READ, block=WAIT_MS)
        entries = found[0][1] if found else []
        self._ids = [number for number, _ in entries]
        return [fields[FIELD] for _, fields in entries]

    async def acknowledge(self) -> None:
        if self._ids:
            self._client.xack(self._stream, GROUP, *self._ids)


async def run(job: Job, gate: Gate) -> Span:
    host, _, port = job.address.rpartition(":")
    with Redis(host, int(port), protocol=2) as client:
        if job.role == "produce":
            return await client_loops.produce(job, RedisSender(client, job.topics[0]), gate)
        return await client_loops.consume(job, RedisReceiver(client, job.topics[0]), gate)


async def drop(job: Job) -> None:
    host, _, port = job.address.rpartition(":")
    with Redis(host, int(port)) as client:
        client.delete(job.topics[0])
