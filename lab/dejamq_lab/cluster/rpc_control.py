"""Questions of the lab and the command line to servers: health, routes, topics. One short connection each."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
from dejamq_proto import admin_pb2, common_pb2, namesrv_pb2
from dejamq_proto.account import Account, account_of_environment
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import MASTER_ID, PERM_READ, PERM_WRITE
from dejamq_proto.namesrv_pb2_grpc import NameServerStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.tls import ClientTls
from grpc_health.v1 import health_pb2, health_pb2_grpc

TIMEOUT_MS = 3_000


@dataclass(frozen=True)
class BrokerAddresses:
    """One broker name as a name server tells it: broker id -> host:port; id 0 is the master."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True)
class QueueInfo:
    """The queues of a topic at one broker name. ``perm``: 4 read, 2 write."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int


async def healthy(address: str) -> bool:
    """True when the server there says SERVING for itself; False for anything else, silence included."""
    async with _channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def brokers(namesrv: str, account: Account | None = None) -> list[BrokerAddresses]:
    """The brokers that one name server knows. Raises DejamqError."""
    listener = namesrv.rpartition(":")[0]
    request = namesrv_pb2.GetClusterInfoRequest(listener=listener)
    info = await _namesrv(namesrv, "GetClusterInfo", request, account)
    return [BrokerAddresses(broker.cluster, broker.broker_name, dict(broker.addresses)) for broker in info.brokers]


async def route(namesrv: str, topic: str) -> tuple[list[QueueInfo], list[BrokerAddresses]]:
    """Raises RouteNotFound for a topic without a live broker, DejamqError when nobody answers."""
    request = namesrv_pb2.GetRouteRequest(topic=topic, listener=namesrv.rpartition(":")[0])
    answer = await _namesrv(namesrv, "GetRoute", request)
    queues = [QueueInfo(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in answer.queues]
    return queues, [BrokerAddresses(b.cluster, b.broker_name, dict(b.addresses)) for b in answer.brokers]


async def routed_brokers(namesrv: str, topic: str) -> set[str]:
    """The broker names in the topic's route; empty when there is no route or the name server is away."""
    try:
        queues, _ = await route(namesrv, topic)
    except DejamqError:
        return set()
    return {queue.broker_name for queue in queues}


async def registered_addresses(namesrv: str, account: Account | None = None) -> set[str]:
    """Where the replicas of all brokers are that the name server knows; empty when it is away."""
    try:
        return {address for broker in await brokers(namesrv, account) for address in broker.addresses.values()}
    except DejamqError:
        return set()


async def runtime(broker: str) -> dict[str, str]:
    """A broker's facts about itself; empty when it does not answer."""
    async with _channel(broker) as channel:
        stub: Any = AdminStub(channel)
        request = admin_pb2.RuntimeInfoRequest()
        try:
            return dict((await call(stub.RuntimeInfo, request, address=broker, timeout_ms=TIMEOUT_MS)).values)
        except DejamqError:
            return {}


async def follows(slave: str) -> bool:
    """Whether a slave is copying its master's log now."""
    return (await runtime(slave)).get("following") == "true"


async def is_master(replica: str) -> bool:
    """Whether name servers have made this replica its broker's master."""
    return (await runtime(replica)).get("masterLease") == "true"


async def in_place(replica: str) -> bool:
    """Whether a replica follows its master, or has been made the master by name servers."""
    told = await runtime(replica)
    return "true" in (told.get("following"), told.get("masterLease"))


async def update_settings(broker: str, values: Mapping[str, str], account: Account | None = None) -> None:
    """Change settings of the broker that answers there. Raises DejamqError with the broker's reason.

    ``account``: who asks; None: as the environment says.
    """
    async with _channel(broker, account) as channel:
        stub: Any = AdminStub(channel)
        request = admin_pb2.UpdateSettingsRequest(values=values)
        await call(stub.UpdateSettings, request, address=broker, timeout_ms=TIMEOUT_MS)


async def create_topic(broker: str, topic: str, queues: int) -> None:
    """Make or change the topic at one broker. Raises DejamqError with the broker's reason."""
    config = common_pb2.TopicConfig(
        topic=topic, read_queue_nums=queues, write_queue_nums=queues, perm=PERM_READ | PERM_WRITE
    )
    async with _channel(broker) as channel:
        stub: Any = AdminStub(channel)
        request = admin_pb2.CreateTopicRequest(topic=config)
        await call(stub.CreateTopic, request, address=broker, timeout_ms=TIMEOUT_MS)


async def _namesrv(address: str, method: str, request: Any, account: Account | None = None) -> Any:
    async with _channel(address, account) as channel:
        stub: Any = NameServerStub(channel)
        return await call(getattr(stub, method), request, address=address, timeout_ms=TIMEOUT_MS)


@asynccontextmanager
async def _channel(address: str, account: Account | None = None) -> AsyncIterator[grpc.aio.Channel]:
    channel = dial(address, ClientTls.from_environment(), account or account_of_environment())
    try:
        yield channel
    finally:
        await channel.close(None)
