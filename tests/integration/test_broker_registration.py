"""A broker and its name servers: known at once, known again after a restart, gone after a stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker_wire import Wire, a_run, running, until
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import namesrv_pb2
from dejamq_proto.calling import call, dial
from dejamq_proto.codes import DejamqError
from dejamq_proto.namesrv_pb2_grpc import NameServerStub


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
                assert await route(namesrv, "TBW102") == {"broker-a": (8, broker.address)}
        assert await route(first, "TBW102") == await route(second, "TBW102") == {}


async def test_a_broker_that_makes_no_topics_by_itself_is_known_too(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, auto_create_topic_enable=False) as broker:
        assert await route(namesrv, "SELF_TEST_TOPIC") == {"broker-a": (1, broker.address)}


async def test_a_new_topic_is_told_at_once(tmp_path: Path) -> None:
    async with (
        name_server() as namesrv,
        running(tmp_path, namesrv=namesrv, register_name_server_period_ms=3_600_000) as broker,
        Wire(broker.address) as wire,
    ):
        await wire.send(a_run("orders", [b"x"], default_queue_nums=3))
        assert await until(lambda: route(namesrv, "orders")) == {"broker-a": (3, broker.address)}


async def test_a_restarted_name_server_is_told_everything_again(tmp_path: Path) -> None:
    async with name_server() as namesrv:
        pass
    settings = {"register_name_server_period_ms": 3_600_000, "namesrv_reconnect_ms": 20}
    async with running(tmp_path, namesrv=namesrv, **settings) as broker:
        for _ in range(2):
            async with name_server(namesrv):
                assert await until(lambda: route(namesrv, "TBW102")) == {"broker-a": (8, broker.address)}


async def test_a_dead_name_server_delays_nobody(tmp_path: Path) -> None:
    async with name_server() as gone:
        pass
    async with (
        name_server() as alive,
        running(tmp_path, namesrv=f"{gone};{alive}", register_broker_timeout_ms=60_000) as broker,
    ):
        assert await until(lambda: route(alive, "TBW102")) == {"broker-a": (8, broker.address)}


async def test_clients_are_told_the_address_of_the_name_they_dialled(tmp_path: Path) -> None:
    advertise = "198.51.100.7:1;inside=198.51.100.8:2"
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, advertise=advertise) as broker:
        assert broker.address == "198.51.100.7:1"
        assert broker.site.store_host == ("198.51.100.7", 1)
        assert await route(namesrv, "TBW102") == {"broker-a": (8, "198.51.100.7:1")}
        assert await route(namesrv, "TBW102", "inside") == {"broker-a": (8, "198.51.100.8:2")}


async def test_a_read_only_broker_registers_topics_that_nobody_may_write(tmp_path: Path) -> None:
    async with name_server() as namesrv, running(tmp_path, namesrv=namesrv, broker_permission=4):
        channel = dial(namesrv)
        stub: Any = NameServerStub(channel)
        answer: Any = await stub.GetRoute(namesrv_pb2.GetRouteRequest(topic="TBW102"))
        await channel.close(None)
        assert [queue.perm for queue in answer.queues] == [4]
