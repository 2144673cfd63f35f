"""A well-formed request at each door: what an honest client must get while others attack."""

import asyncio
import http.client
import json
from collections.abc import Awaitable, Callable

from broker_wire import a_run
from dejamq_proto.remoting import requests
from dejamq_proto.v2.messages_pb2 import OK
from dejamq_proto.wire.messages import SendRunResult
from hostile_attack import serves_the_honest
from hostile_frames import fast_stream, where
from hostile_servers import Servers, metrics_of
from remoting_wire import remoting
from v2_wire import V2Client, message

SEND_FIELDS = {
    "producerGroup": "honest", "topic": "honest", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "", "reconsumeTimes": "0",
    "unitMode": "false", "batch": "false",
}  # fmt: skip


async def v1(servers: Servers, number: int) -> None:
    await serves_the_honest(await servers.broker.ready(), number)


async def fast(servers: Servers, number: int) -> None:
    broker = await servers.broker.ready()
    stream = await fast_stream(broker, await where(broker), "/dejamq.v1.Send/SendStream")
    try:
        await stream.send(a_run("honest", [b"x"], seq=number).encode())
        assert SendRunResult.decode(bytes(await stream.read())).code == 0
    finally:
        stream.fail("left")


async def remoting_broker(servers: Servers, number: int) -> None:
    async with remoting(await servers.broker.ready()) as client:
        told = await client.ask(requests.SEND_MESSAGE, b"%d" % number, **SEND_FIELDS)
        assert told.code == 0, told


async def remoting_namesrv(servers: Servers, number: int) -> None:
    async with remoting(await servers.namesrv.ready()) as client:
        told = await client.ask(requests.GET_CLUSTER_INFO)
        assert told.code == 0, told


async def v2(servers: Servers, number: int) -> None:
    client = V2Client(await servers.broker.ready())
    try:
        told = await client.send(message(b"x", "honest"))
        assert told.status.code == OK, told
    finally:
        await client.channel.close()


async def pages(servers: Servers, number: int) -> None:
    for address, path in (
        (metrics_of(servers.broker), "/metrics"), (metrics_of(servers.namesrv), "/metrics"),
        (await servers.dev.control(), "/health"), (await servers.console.ready(), "/overview.json"),
    ):  # fmt: skip
        status, said = await get(address, path)
        assert status == 200, (address, path, said[:300])
        if path == "/health":
            assert json.loads(said)["status"] == "SERVING"


async def get(address: str, path: str, method: str = "GET") -> tuple[int, bytes]:
    """By a client of the standard library, beside the loop."""

    def asked() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    return await asyncio.to_thread(asked)


DOORS: tuple[Callable[[Servers, int], Awaitable[None]], ...] = (v1, fast, remoting_broker, remoting_namesrv, v2, pages)


async def each_door_serves(servers: Servers, number: int) -> None:
    """Raises AssertionError. Faults that stand are ended first: they were asked for."""
    status, said = await get(await servers.dev.control(), "/faults", "DELETE")
    assert status == 200, said[:300]
    for door in DOORS:
        try:
            await door(servers, number)
        except Exception as error:
            raise AssertionError(f"an honest client was not served at {door.__name__}: {error!r}") from error
