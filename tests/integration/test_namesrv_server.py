import asyncio
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import namesrv_pb2 as pb
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.common_pb2 import Caller, DataVersion, TopicConfig
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.probe import state_of
from dejamq_proto.wire.calling import call, dial
from grpc_health.v1 import health_pb2, health_pb2_grpc
from journalled import journalled

IDENTITY = pb.BrokerIdentity(cluster="lab", broker_name="broker-a", address="127.0.0.1:10911", boot_id="b1")


class Client:
    """What a broker or a client does with one name server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel: grpc.aio.Channel = dial(address)
        self.stub: Any = NameServerStub(self.channel)

    async def call(self, method: str, request: Any) -> Any:
        return await call(getattr(self.stub, method), request, address=self.address, timeout_ms=5_000)

    async def register(self, *names: str, identity: pb.BrokerIdentity = IDENTITY) -> pb.RegisterBrokerResponse:
        configs = [
            TopicConfig(topic=name, read_queue_nums=4, write_queue_nums=4, perm=6) for name in (*names, "TBW102")
        ]
        request = pb.RegisterBrokerRequest(broker=identity, topics=configs, data_version=DataVersion(counter=1))
        answer: pb.RegisterBrokerResponse = await self.call("RegisterBroker", request)
        return answer

    async def brokers(self, topic: str) -> list[str]:
        try:
            route = await self.call("GetRoute", pb.GetRouteRequest(topic=topic, caller=Caller(boot_id="c1")))
        except DejamqError as error:
            if error.code != Code.TOPIC_NOT_EXIST:
                raise
            return []
        return [broker.broker_name for broker in route.brokers]

    async def hold_channel(self) -> Any:
        stream = self.stub.BrokerChannel()
        await stream.write(pb.BrokerPresence(broker=IDENTITY))
        assert await stream.read() == pb.BrokerPresenceAck()
        return stream

    async def until_gone(self, topic: str) -> None:
        async with asyncio.timeout(30):
            while await self.brokers(topic):
                await asyncio.sleep(0.01)


@pytest.fixture
async def servers(tmp_path: Path) -> AsyncIterator[list[NameServer]]:
    configs = [NamesrvConfig("127.0.0.1:0", f"namesrv-{n}", journal_dir=str(tmp_path)) for n in range(2)]
    started = [NameServer(config) for config in configs]
    for server in started:
        await server.start()
    yield started
    for server in started:
        await server.close()


@pytest.fixture
async def clients(servers: list[NameServer]) -> AsyncIterator[list[Client]]:
    opened = [Client(server.address) for server in servers]
    yield opened
    for client in opened:
        await client.channel.close(None)


async def test_two_name_servers_know_nothing_of_each_other(clients: list[Client]) -> None:
    await clients[0].register("orders")
    assert await clients[0].brokers("orders") == ["broker-a"]
    assert await clients[1].brokers("orders") == []


async def test_the_end_of_a_brokers_channel_removes_it_at_once(clients: list[Client]) -> None:
    await clients[0].register("orders")
    stream = await clients[0].hold_channel()
    stream.cancel()
    await clients[0].until_gone("orders")


async def test_a_lost_connection_removes_the_broker_at_once(servers: list[NameServer], clients: list[Client]) -> None:
    doomed = Client(servers[0].address)
    await doomed.register("orders")
    await doomed.hold_channel()
    await doomed.channel.close(None)
    await clients[0].until_gone("orders")


async def test_a_broker_that_unregisters_is_gone_for_the_next_question(clients: list[Client]) -> None:
    await clients[0].register("orders")
    await clients[0].call("UnregisterBroker", pb.UnregisterBrokerRequest(broker=IDENTITY))
    assert await clients[0].brokers("orders") == []


async def test_routes_of_several_topics_are_answered_in_their_order_each_as_if_asked_for_alone(
    clients: list[Client],
) -> None:
    await clients[0].register("orders", "bills")
    topics = ("bills", "nope", "orders")
    answers = (await clients[0].call("GetRoutes", pb.GetRoutesRequest(topics=topics))).answers
    alone = [await clients[0].call("GetRoute", pb.GetRouteRequest(topic=topic)) for topic in ("bills", "orders")]
    with pytest.raises(DejamqError) as caught:
        await clients[0].call("GetRoute", pb.GetRouteRequest(topic="nope"))
    assert [(answer.code, answer.remark) for answer in answers] == [
        (0, ""), (int(caught.value.code), str(caught.value)), (0, "")
    ]  # fmt: skip
    assert [answers[0].route, answers[2].route] == alone


async def test_order_topics_are_told_to_brokers_and_kept_from_clients_by_default(clients: list[Client]) -> None:
    put = pb.PutConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
    await clients[0].call("PutConfig", put)
    assert dict((await clients[0].register("orders")).order_topics) == {"orders": "broker-a:4"}
    route = await clients[0].call("GetRoute", pb.GetRouteRequest(topic="orders"))
    assert route.order_conf == ""
    assert [(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in route.queues] == [
        ("broker-a", 4, 4, 6)
    ]


async def test_with_order_messages_enabled_the_route_carries_the_order_conf(tmp_path: Path) -> None:
    server = NameServer(NamesrvConfig("127.0.0.1:0", directory=str(tmp_path), order_message_enable=True))
    client = Client(await server.start())
    try:
        await client.register("orders")
        put = pb.PutConfigRequest(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
        await client.call("PutConfig", put)
        assert (await client.call("GetRoute", pb.GetRouteRequest(topic="orders"))).order_conf == "broker-a:4"
    finally:
        await client.channel.close(None)
        await server.close()


async def test_config_items_are_put_got_and_deleted(clients: list[Client]) -> None:
    await clients[0].call("PutConfig", pb.PutConfigRequest(namespace="n", key="k", value="v"))
    assert (await clients[0].call("GetConfig", pb.GetConfigRequest(namespace="n", key="k"))).value == "v"
    await clients[0].call("DeleteConfig", pb.DeleteConfigRequest(namespace="n", key="k"))
    with pytest.raises(DejamqError) as caught:
        await clients[0].call("GetConfig", pb.GetConfigRequest(namespace="n", key="k"))
    assert caught.value.code == Code.QUERY_NOT_FOUND


async def test_topics_and_brokers_are_listed(clients: list[Client]) -> None:
    await clients[0].register("orders")
    assert list((await clients[0].call("ListTopics", pb.ListTopicsRequest())).topics) == ["TBW102", "orders"]
    info = await clients[0].call("GetClusterInfo", pb.GetClusterInfoRequest())
    assert [(b.cluster, b.broker_name, dict(b.addresses)) for b in info.brokers] == [
        ("lab", "broker-a", {0: "127.0.0.1:10911"})
    ]


async def test_the_answer_names_the_address_of_the_listener_that_was_dialled(clients: list[Client]) -> None:
    listeners = pb.BrokerIdentity(advertised={"namesrv-a": "broker-a:10911"})
    listeners.MergeFrom(IDENTITY)
    await clients[0].register("orders", identity=listeners)
    for listener, address in (("namesrv-a", "broker-a:10911"), ("127.0.0.1", "127.0.0.1:10911")):
        route = await clients[0].call("GetRoute", pb.GetRouteRequest(topic="orders", listener=listener))
        info = await clients[0].call("GetClusterInfo", pb.GetClusterInfoRequest(listener=listener))
        assert dict(route.brokers[0].addresses) == dict(info.brokers[0].addresses) == {0: address}


async def test_a_silent_broker_expires_by_the_injected_clock() -> None:
    now = [0]
    server = NameServer(NamesrvConfig("127.0.0.1:0"), now_ms=lambda: now[0])
    client = Client(await server.start())
    try:
        await client.register("orders")
        now[0] = 120_000
        assert await client.brokers("orders") == ["broker-a"]
        now[0] = 120_001
        assert await client.brokers("orders") == []
    finally:
        await client.channel.close(None)
        await server.close()


async def test_it_says_serving_when_it_serves(servers: list[NameServer], clients: list[Client]) -> None:
    health: Any = health_pb2_grpc.HealthStub(clients[0].channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING


async def test_closing_does_not_wait_for_the_channels_of_brokers() -> None:
    server = NameServer(NamesrvConfig("127.0.0.1:0", shutdown_grace_ms=3_600_000))
    client = Client(await server.start())
    stream = await client.hold_channel()
    async with asyncio.timeout(10):
        await server.close()
        await server.close()
    assert await stream.read() != pb.BrokerPresenceAck()
    await client.channel.close(None)


async def test_the_journal_tells_who_came_and_went_and_what_was_answered(
    servers: list[NameServer], clients: list[Client], tmp_path: Path
) -> None:
    await clients[0].register("orders")
    assert await clients[0].brokers("orders") == ["broker-a"]
    await clients[0].call("UnregisterBroker", pb.UnregisterBrokerRequest(broker=IDENTITY))
    await servers[0].close()
    journal = tmp_path / f"namesrv-namesrv-0-{servers[0].boot_id}.jsonl"
    lines = journalled(journal)
    assert [line["event"] for line in lines] == ["STATE", "BROKER", "ROUTE", "BROKER", "STATE"]
    assert lines[0]["reason"] == "level=audit"
    assert [(line["change"], line["reason"]) for line in lines if line["event"] == "BROKER"] == [
        ("+", "register"),
        ("-", "unregister"),
    ]
    assert (lines[2]["client_boot_id"], lines[2]["brokers"]) == ("c1", ["broker-a:0=127.0.0.1:10911"])


@pytest.mark.parametrize(
    "nobody",
    [
        pb.BrokerIdentity(address="127.0.0.1:10911"),
        pb.BrokerIdentity(broker_name="broker-a"),
        pb.BrokerIdentity(broker_name="broker-a", address="127.0.0.1:10911", broker_id=-1),
    ],
)
async def test_a_broker_without_name_or_address_is_refused(clients: list[Client], nobody: pb.BrokerIdentity) -> None:
    with pytest.raises(DejamqError, match="registers with a name") as caught:
        await clients[0].register("orders", identity=nobody)
    assert caught.value.code == Code.INVALID_PARAMETER


async def test_a_port_in_use_is_one_clear_error(servers: list[NameServer]) -> None:
    second = NameServer(NamesrvConfig(servers[0].address))
    with pytest.raises(ConfigError, match="port is in use"):
        await second.start()
    await second.close()


async def test_a_name_server_tells_prometheus_what_it_knows() -> None:
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0", metrics_listen="127.0.0.1:0"))
    await server.start()
    try:
        address = server.metrics_address
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{address}/metrics").read().decode())
        assert 'dejamq_namesrv_brokers{node_id="namesrv",node_type="namesrv"} 0.0' in text
        assert await state_of(server.address, service="liveness") == "SERVING"
    finally:
        await server.close()
