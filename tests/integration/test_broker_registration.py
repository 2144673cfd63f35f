"""A broker and its name servers: known at once, known again after a restart, gone after a stop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, dialled, running, until
from dejamq_broker.doors.remoting.namesrv import RocketMQRegistration, refuses_grpc
from dejamq_broker.doors.v1.namesrv import NameServerRegistration
from dejamq_lab.cluster.ports import held_ports
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import namesrv_pb2
from dejamq_proto.codes import DejamqError
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.remoting import bodies, requests
from dejamq_proto.remoting_client import connect
from dejamq_proto.wire.calling import call, dial


@asynccontextmanager
async def name_server(listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = NameServer(NamesrvConfig(listen=listen))
    address = await server.start()
    try:
        yield address
    finally:
        await server.close()


async def route(namesrv: str, topic: str, listener: str = "") -> dict[str, tuple[int, str]]:
    """Broker name -> (write queues, address); empty when nobody serves the topic."""
    channel = dial(namesrv)
    stub: Any = NameServerStub(channel)
    request = namesrv_pb2.GetRouteRequest(topic=topic, listener=listener)
    try:
        answer: Any = await call(stub.GetRoute, request, address=namesrv, timeout_ms=5000)
    except DejamqError:
        return {}
    finally:
        await channel.close(None)
    addresses = {broker.broker_name: broker.addresses[0] for broker in answer.brokers}
    return {queue.broker_name: (queue.write_queue_nums, addresses[queue.broker_name]) for queue in answer.queues}


async def test_a_started_broker_is_known_everywhere_and_a_stopped_one_nowhere(tmp_path: Path) -> None:
    async with name_server() as first, name_server() as second:
        async with running(tmp_path, namesrv=f"{first};{second}") as broker:
            for namesrv in (first, second):
                assert await route(namesrv, "TBW102") == {"broker-a": (8, dialled(broker))}
        assert await route(first, "TBW102") == await route(second, "TBW102") == {}


async def test_a_broker_that_makes_no_topics_by_itself_is_known_too(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, auto_create_topic_enable=False) as broker:
        assert await route(namesrv, "SELF_TEST_TOPIC") == {"broker-a": (1, dialled(broker))}


async def test_a_new_topic_is_told_at_once(tmp_path: Path) -> None:
    async with (
        name_server() as namesrv,
        running(tmp_path, namesrv=namesrv, register_name_server_period_ms=3_600_000) as broker,
        Wire(broker.address) as wire,
    ):
        await wire.send(a_run("orders", [b"x"], default_queue_nums=3))
        assert await until(lambda: route(namesrv, "orders")) == {"broker-a": (3, dialled(broker))}


async def test_a_restarted_name_server_is_told_everything_again(tmp_path: Path) -> None:
    settings = {"register_name_server_period_ms": 3_600_000, "namesrv_reconnect_ms": 20}
    with held_ports(1) as (port,):
        namesrv = f"127.0.0.1:{port}"
        async with running(tmp_path, namesrv=namesrv, **settings) as broker:
            for _ in range(2):
                async with name_server(namesrv):
                    assert await until(lambda: route(namesrv, "TBW102")) == {"broker-a": (8, dialled(broker))}


async def test_a_dead_name_server_delays_nobody(tmp_path: Path) -> None:
    with held_ports(1) as (port,):
        async with (
            name_server() as alive,
            running(tmp_path, namesrv=f"127.0.0.1:{port};{alive}", register_broker_timeout_ms=60_000) as broker,
        ):
            assert await until(lambda: route(alive, "TBW102")) == {"broker-a": (8, dialled(broker))}


async def test_clients_are_told_the_address_of_the_name_they_dialled(tmp_path: Path) -> None:
    advertise = "198.51.100.7:1;inside=198.51.100.8:2"
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, advertise=advertise) as broker:
        assert broker.address == "198.51.100.7:1"
        assert broker.site.store_host == ("198.51.100.7", 1)
        assert await route(namesrv, "TBW102") == {"broker-a": (8, "198.51.100.7:1")}
        assert await route(namesrv, "TBW102", "inside") == {"broker-a": (8, "198.51.100.8:2")}


async def test_a_broker_that_runs_may_advertise_another_address(tmp_path: Path) -> None:
    hour = 3_600_000
    async with name_server() as namesrv:
        async with running(tmp_path, namesrv=namesrv, register_name_server_period_ms=hour) as broker:
            for address in ("198.51.100.7:1", "198.51.100.7:2"):
                broker.domain.services.settings.update({"advertise": address})
            told = {"broker-a": (8, "198.51.100.7:2")}
            await until(lambda: _is(route(namesrv, "TBW102"), told))
            assert broker.site.store_host == ("198.51.100.7", 2)
            broker.domain.services.settings.update({"advertise": ""})
            await until(lambda: broker.address != "198.51.100.7:2")
            await until(lambda: _is(route(namesrv, "TBW102"), {"broker-a": (8, dialled(broker))}))
        assert await route(namesrv, "TBW102") == {}


async def test_a_broker_that_moved_and_lost_its_presence_leaves_the_routes(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path) as broker:
        link = NameServerRegistration(namesrv, broker.site, broker.domain.tables.topics, broker.config, None)
        await link.register()
        answers: list[None] = []
        presence = asyncio.create_task(link.hold(lambda: answers.append(None)))
        await until(lambda: answers)
        broker.site.address, broker.site.advertised = "198.51.100.7:1", {}
        await link.register()
        await until(lambda: len(answers) == 2)
        presence.cancel()
        await until(lambda: _is(route(namesrv, "TBW102"), {}))
        await link.close()


async def test_a_broker_registers_by_remoting_too_and_leaves_with_its_connection(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path, auto_create_topic_enable=False) as broker:
        link = RocketMQRegistration(namesrv, broker.site, broker.domain.tables.topics, 5000, None)
        opened: list[None] = []
        presence = asyncio.create_task(link.hold(lambda: opened.append(None)))
        await until(lambda: opened)
        await link.register()
        assert await foreign_brokers(namesrv) == {"broker-a": {"0": broker.address}}
        await link.unregister(5000)
        assert await foreign_brokers(namesrv) == {}
        await link.register()
        await link.close()
        await asyncio.wait_for(presence, 10)
        await until(lambda: _is(foreign_brokers(namesrv), {}))


async def test_a_refused_registration_says_why(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        link = RocketMQRegistration(broker.address, broker.site, broker.domain.tables.topics, 5000, None)
        with pytest.raises(DejamqError, match="request type 103 not supported"):
            await link.register()
        await link.close()


async def test_only_a_server_that_ends_what_begins_as_grpc_refuses_it(tmp_path: Path) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(16)
        writer.close()

    ending = await asyncio.start_server(end, "127.0.0.1", 0)
    async with name_server() as namesrv, ending:
        port = ending.sockets[0].getsockname()[1]
        assert await refuses_grpc(f"127.0.0.1:{port}")
        assert not await refuses_grpc(namesrv)
    assert not await refuses_grpc(namesrv)  # nobody is there


async def foreign_brokers(namesrv: str) -> dict[str, dict[str, str]]:
    """Names and addresses of all brokers, as RocketMQ's tools are told."""
    client = await connect(namesrv, lambda command: None)
    answer = await client.ask(requests.GET_CLUSTER_INFO)
    await client.close()
    table = bodies.read(answer.body, bodies.ClusterInfo).broker_addr_table
    return {name: one.broker_addrs for name, one in table.items()}


async def _is(question: Awaitable[Any], answer: Any) -> bool:
    return bool(await question == answer)


async def test_a_read_only_broker_registers_topics_that_nobody_may_write(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, broker_permission=4):
        channel = dial(namesrv)
        stub: Any = NameServerStub(channel)
        answer: Any = await stub.GetRoute(namesrv_pb2.GetRouteRequest(topic="TBW102"))
        await channel.close(None)
        assert [queue.perm for queue in answer.queues] == [4]
