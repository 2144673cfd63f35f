"""A broker of ours at a name server of RocketMQ's own, beside a real broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_wire import running, until
from dejamq import Message, Producer
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting_client import connect
from java_clients import java_member

TOPIC = "own_member"
OURS = "broker-ours"
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(300)]


async def brokers_at(namesrv: str, topic: str) -> dict[str, str]:
    """Addresses of the masters in RocketMQ's route of the topic."""
    client = await connect(namesrv, lambda command: None)
    answer = await client.ask(requests.GET_ROUTE, requests.OfTopic(topic=topic))
    await client.close()
    if not answer.body:
        return {}
    return {
        one.broker_name: one.broker_addrs["0"] for one in bodies.read(answer.body, bodies.TopicRouteData).broker_datas
    }


@pytest.fixture
async def own_namesrv() -> AsyncIterator[str]:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    yield await server.start()
    await server.close()


async def test_java_finds_a_broker_of_ours_by_a_real_name_server(
    own_namesrv: str, real_namesrv: str, tmp_path: Path
) -> None:
    settings = {"broker_name": OURS, "namesrv": f"{own_namesrv};{real_namesrv}"}
    async with running(tmp_path / "store", **settings) as broker, Producer("pg", namesrv=own_namesrv) as producer:
        assert (await brokers_at(real_namesrv, "TBW102"))[OURS] == broker.address
        await producer.send(Message(TOPIC, b"body 0"))

        async def is_known() -> bool:
            return await brokers_at(real_namesrv, TOPIC) == {OURS: broker.address}

        await until(is_known, 30)
        async with java_member("5.3.3", real_namesrv, tmp_path, "own") as theirs:
            for number in range(1, 20):
                await producer.send(Message(TOPIC, f"body {number}".encode()))
            await until(lambda: sorted(theirs) == sorted(f"body {number}" for number in range(20)), 60)
    assert OURS not in await brokers_at(real_namesrv, "TBW102")
