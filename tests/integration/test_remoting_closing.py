"""The end of a server for clients of its remoting door: nobody new, each request answered, no endless wait."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from broker_wire import running, until
from dejamq_broker.app import Broker
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import Code
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.frames import answer
from dejamq_proto.remoting.header import Command
from dejamq_proto.serving import remoting as door
from dejamq_proto.wire.calling import dial
from grpc_health.v1 import health_pb2, health_pb2_grpc
from remoting_wire import RemotingClient, a_heartbeat, a_send, remoting

WAITS, LARGE = r.GET_RUNTIME_INFO.code, r.GET_ALL_TOPIC_CONFIG.code
"""With other handlers than theirs."""
OLD = 473
"""RocketMQ's V5_3_0."""
NO_END_MS = 600_000


class Held:
    """A server with a request that waits until it may go on, and one whose answer is large."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.go_on, self.entered = broker, asyncio.Event(), asyncio.Event()
        handlers = cast(dict[int, Callable[..., Any]], broker.remoting.handlers)
        handlers[WAITS] = lambda _, command: self._wait(command)
        handlers[LARGE] = lambda _, command: answer(command, body=bytes(8 << 20))

    async def _wait(self, command: Command) -> Command:
        self.entered.set()
        await self.go_on.wait()
        return answer(command)


@pytest.fixture
async def held(tmp_path: Path) -> AsyncIterator[Held]:
    async with running(tmp_path, shutdown_grace_ms=NO_END_MS) as broker:
        held = Held(broker)
        yield held
        held.go_on.set()


@asynccontextmanager
async def closing(held: Held, client: RemotingClient) -> AsyncIterator[asyncio.Task[Command]]:
    """The server closes, and waits for a request of this client."""
    waiting = asyncio.create_task(client.ask(WAITS))
    await held.entered.wait()
    closed = asyncio.create_task(held.broker.close())
    await until(lambda: held.broker.remoting.closing)
    yield waiting
    held.go_on.set()
    await closed


@pytest.mark.parametrize(("version", "code"), [(OLD, Code.SERVICE_NOT_AVAILABLE), (479, Code.GO_AWAY)])
async def test_a_request_that_comes_while_the_broker_closes_is_answered_to_go_elsewhere(
    held: Held, version: int, code: Code
) -> None:
    async with remoting(held.broker.address) as client:
        client.version = version
        async with closing(held, client) as waiting:
            assert (await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())).code == code
            held.go_on.set()
            assert (await waiting).code == 0


async def test_nobody_connects_any_more_while_a_request_ends(held: Held) -> None:
    async with remoting(held.broker.address) as client:
        host, _, port = held.broker.address.rpartition(":")
        ports = int(port), held.broker.fast.port
        async with closing(held, client):
            for each in ports:
                with pytest.raises(ConnectionRefusedError):
                    await asyncio.open_connection(host, each)


async def test_a_connection_that_speaks_first_while_the_broker_closes_is_ended(held: Held) -> None:
    async with (
        remoting(held.broker.address) as client, remoting(held.broker.address) as silent, closing(held, client),
        asyncio.timeout(10),
    ):  # fmt: skip
        silent.tell(r.HEART_BEAT, a_heartbeat())
        await silent.closed.wait()
        assert len(held.broker.remoting.connections) == 1


async def test_a_oneway_commit_counts_while_the_broker_closes(held: Held) -> None:
    """Nobody can be told that it does not."""
    async with remoting(held.broker.address) as client:
        await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())
        await client.ask(r.HEART_BEAT, a_heartbeat())
        async with closing(held, client):
            at = {"consumerGroup": "cg", "topic": "t", "queueId": 0, "commitOffset": 1}
            client.tell(r.UPDATE_CONSUMER_OFFSET, **at)
            await until(lambda: list(held.broker.domain.tables.offsets.of_group("cg")) == [("t", 0, 1)])


async def test_a_client_that_does_not_read_does_not_keep_the_broker_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "LAST_WORDS_S", 0.1)
    async with running(tmp_path, shutdown_grace_ms=50) as broker:
        held = Held(broker)
        async with remoting(broker.address) as client:
            client.stop_reading()
            for code in (WAITS, LARGE, LARGE):
                client.ask_without_waiting(code)
            await until(lambda: broker.remoting.connections)
            (connection,) = broker.remoting.connections
            await until(lambda: connection.full)
            async with asyncio.timeout(10):
                await broker.close()
            assert not broker.remoting.connections
        held.go_on.set()


async def test_a_connection_that_speaks_first_while_a_name_server_closes_is_ended() -> None:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0", shutdown_grace_ms=3_000))
    address = await server.start()
    async with remoting(address) as silent:
        channel = dial(address)
        watch: Any = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        await watch.read()
        closed = asyncio.create_task(server.close())
        while (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING:
            pass
        host, _, port = address.rpartition(":")
        await until(lambda: _refused(host, int(port)))
        silent.tell(r.GET_ROUTE, topic="t")
        async with asyncio.timeout(10):
            await silent.closed.wait()
        assert not closed.done()
        watch.cancel()
        await channel.close(None)
        await closed


async def _refused(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False
