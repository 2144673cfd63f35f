"""The broker shares out queues to RocketMQ's push consumers with ``clientRebalance=false``, to pull or to pop them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import broker_config, running, until
from dejamq_broker.app import Broker
from dejamq_broker.members.groups import Consumer
from dejamq_broker.tables.offsets import Asker
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto.codes import Code
from dejamq_proto.remoting import pop_requests, requests
from remoting_wire import RemotingClient, a_heartbeat, remoting


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        broker.domain.tables.topics.ensure("t", 4)
        yield broker


async def joined(client: RemotingClient, client_id: str, **more: Any) -> None:
    assert (await client.ask(requests.HEART_BEAT, a_heartbeat(client_id, **more))).code == 0


async def share(client: RemotingClient, client_id: str, topic: str = "t", **more: Any) -> Any:
    """Mode, brokers and queues of the answer; None where the broker says nothing."""
    question = {
        "clientId": client_id, "consumerGroup": "cg", "topic": topic, "messageModel": "CLUSTERING",
        "strategyName": "AVG",
    } | more  # fmt: skip
    told = await client.ask(pop_requests.QUERY_ASSIGNMENT, question)
    assert told.code == 0
    listed = json.loads(told.body).get("messageQueueAssignments")
    if listed is None:
        return None
    assert {each["messageQueue"]["topic"] for each in listed} <= {topic}
    return [(each["mode"], each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"]) for each in listed]


async def set_mode(client: RemotingClient, mode: object, shared_by: int = 0, topic: str = "t") -> int:
    body = {"topic": topic, "consumerGroup": "cg", "mode": mode, "popShareQueueNum": shared_by}
    return (await client.ask(pop_requests.SET_REQUEST_MODE, body)).code


async def test_queues_are_shared_out_to_be_pulled_until_an_operator_says_pop(broker: Broker) -> None:
    async with remoting(broker.address) as one, remoting(broker.address) as two:
        assert await share(one, "c1") is None  # nobody is a member yet
        await joined(one, "c1")
        await joined(two, "c2")
        pulled = [("PULL", "broker-a", number) for number in range(4)]
        assert (await share(one, "c1"), await share(two, "c2")) == (pulled[:2], pulled[2:])
        assert await share(one, "c1", strategyName="AVG_BY_CIRCLE") == pulled[::2]
        assert await share(one, "c1", messageModel="BROADCASTING") == pulled
        assert await share(one, "elsewhere") == []
        assert await share(one, "c1", strategyName="OWN") is None
        assert await share(one, "c1", "none") is None
        assert await set_mode(one, "POP") == 0
        for client, name in ((one, "c1"), (two, "c2")):
            assert await share(client, name) == [("POP", "broker-a", -1)]
        assert await share(one, "c1", "%RETRY%cg") == [("PULL", "broker-a", 0)]


@pytest.mark.parametrize(
    ("members", "shared_by", "queues"),
    [(4, 1, [0, 1]), (4, 2, [0, 1, 2]), (4, 3, [-1]), (3, 1, [0, 1, 2]), (5, 1, [0]), (2, 1, [-1])],
)
async def test_members_that_pop_share_the_queues_of_as_many_others_as_the_operator_says(
    broker: Broker, members: int, shared_by: int, queues: list[int]
) -> None:
    async with remoting(broker.address) as client:
        for number in range(members):
            channel = broker.domain.members.clients.open(lambda _: None)
            broker.domain.members.clients.heartbeat(channel, Asker(f"c{number}", f"b{number}", 1), [Consumer("cg")])
        assert await set_mode(client, "POP", shared_by) == 0
        assert [queue_id for _, _, queue_id in await share(client, "c0")] == queues


async def test_modes_that_cannot_be_are_refused_with_rocketmqs_codes(broker: Broker) -> None:
    async with remoting(broker.address) as client:
        assert await set_mode(client, "POP") == Code.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await set_mode(client, "POP", topic="none") == Code.TOPIC_NOT_EXIST
        assert await set_mode(client, "POP", topic="%RETRY%cg") == Code.NO_PERMISSION
        assert await set_mode(client, "PUSH") == Code.INVALID_PARAMETER
        assert (await client.ask(pop_requests.QUERY_ASSIGNMENT, b"{")).code == Code.SYSTEM_ERROR


async def test_all_modes_are_told_to_who_asks_for_them(broker: Broker) -> None:
    broker.domain.tables.groups.require("cg")
    async with remoting(broker.address) as client:
        told = await client.ask(pop_requests.GET_ALL_REQUEST_MODES)
        assert (told.code, json.loads(told.body)) == (Code.SUCCESS, {"messageRequestModeMap": {}})
        assert await set_mode(client, "POP", 2) == 0
        told = await client.ask(pop_requests.GET_ALL_REQUEST_MODES)
    kept = {"topic": "t", "consumerGroup": "cg", "mode": "POP", "popShareQueueNum": 2}
    assert json.loads(told.body) == {"messageRequestModeMap": {"t": {"cg": kept}}}


async def test_a_mode_outlives_the_broker_in_rocketmqs_file_and_ends_with_its_topic(tmp_path: Path) -> None:
    file = tmp_path / "config" / "messageRequestMode.json"
    async with running(tmp_path) as broker:
        broker.domain.tables.topics.ensure("t", 4)
        broker.domain.tables.groups.require("cg")
        async with remoting(broker.address) as client:
            assert await set_mode(client, 1, 2) == 0
    kept = {"topic": "t", "consumerGroup": "cg", "mode": "POP", "popShareQueueNum": 2}
    assert json.loads(file.read_text()) == {"messageRequestModeMap": {"t": {"cg": kept}}}
    async with running(tmp_path) as broker:
        found = broker.domain.tables.request_modes.get("t", "cg")
        assert found is not None
        assert (found.mode, found.pop_share_queue_num) == ("POP", 2)
        async with remoting(broker.address) as client:
            assert (await client.ask(requests.DELETE_TOPIC, topic="t")).code == 0
    assert json.loads(file.read_text()) == {"messageRequestModeMap": {}}


async def test_one_broker_shares_out_the_queues_of_all(tmp_path: Path) -> None:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    namesrv = await server.start()
    brokers = [
        Broker(broker_config(
            tmp_path / name, broker_name=name, namesrv=namesrv, register_name_server_period_ms=200
        ))
        for name in ("broker-a", "broker-b")
    ]  # fmt: skip
    try:
        for broker in brokers:
            await broker.start()
            broker.domain.tables.topics.ensure("t", 2)
        async with remoting(brokers[0].address) as client:
            await joined(client, "c1")
            both = [("PULL", name, number) for name in ("broker-a", "broker-b") for number in range(2)]

            async def all_there() -> bool:
                return bool(await share(client, "c1") == both)

            await until(all_there)
            assert await set_mode(client, "POP") == 0
            assert await share(client, "c1") == [("POP", "broker-a", -1), ("POP", "broker-b", -1)]
    finally:
        for broker in brokers:
            await broker.close()
        await server.close()
