"""``python many_clients.py KIND FIRST COUNT GROUPS TOPICS HOSTS ADDRESS``: one process with many clients of a broker.

It says ``connected`` when each client has its heartbeat acknowledged. Then it takes a line of input at a time:
``beat`` sends one heartbeat of each client and waits for the answers, ``close`` ends all connections. Each is answered
by a line.
``KIND`` is ``remoting`` (RocketMQ's Java clients), ``v1`` (gRPC of dejamq) or ``v2`` (gRPC of RocketMQ 5).
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import grpc.aio
from broker_wire import Wire
from dejamq_proto import client_pb2
from dejamq_proto.remoting import requests
from dejamq_proto.v2 import messages_pb2 as pb
from remoting_wire import RemotingClient, remoting
from v2_wire import V2Client, consumer_settings

TOPICS_OF_A_GROUP = 5
AT_A_TIME = 64
DEADLINE_S = 300


def topic(number: int) -> str:
    return f"topic-{number:05d}"


def group_name(number: int) -> str:
    return f"group-{number:05d}"


def topics_of(group: int, topics: int) -> list[str]:
    return [topic((group * TOPICS_OF_A_GROUP + one) % topics) for one in range(min(TOPICS_OF_A_GROUP, topics))]


class Client(Protocol):
    async def open(self) -> None:
        """Connect, and join the group."""

    async def beat(self) -> None:
        """One heartbeat, acknowledged."""

    async def close(self) -> None: ...


class Remoting:
    """As a Java client: a producer and a push consumer of one process."""

    def __init__(self, address: str, client_id: str, group: int, topics: list[str]) -> None:
        self._address, self._stack = address, AsyncExitStack()
        self._client: RemotingClient | None = None
        names = [*topics, f"%RETRY%{group_name(group)}"]
        self._body = {
            "clientID": client_id,
            "consumerDataSet": [{
                "groupName": group_name(group), "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": name, "subString": "*", "expressionType": "TAG", "subVersion": 1,
                        "classFilterMode": False, "codeSet": [], "tagsSet": [],
                    }
                    for name in names
                ],
            }],
            "producerDataSet": [{"groupName": f"producers-{group:05d}"}],
        }  # fmt: skip

    async def open(self) -> None:
        self._client = await self._stack.enter_async_context(remoting(self._address))
        await self.beat()

    async def beat(self) -> None:
        assert self._client is not None
        answer = await self._client.ask(requests.HEART_BEAT, self._body)
        assert (answer.code, answer.remark) == (0, None), answer
        while not self._client.pushed.empty():
            self._client.pushed.get_nowait()

    async def close(self) -> None:
        await self._stack.aclose()


class OfOurs:
    """As a producer and a push consumer of dejamq, which dials gRPC's own port."""

    def __init__(self, address: str, client_id: str, group: int, topics: list[str]) -> None:
        self._wire = Wire(address, client_id)
        names = [*topics, f"%RETRY%{group_name(group)}"]
        self._beat = client_pb2.Heartbeat(
            producer_groups=[f"producers-{group:05d}"], version="1.0", consumers=[client_pb2.ConsumerData(
                group=group_name(group), consume_type="PUSH", message_model="CLUSTERING", consume_from="LAST_OFFSET",
                allocation="AVG", subscriptions=[
                    client_pb2.Subscription(topic=name, expression="*", expression_type="TAG", version=1)
                    for name in names
                ],
            )],
        )  # fmt: skip

    async def open(self) -> None:
        self._stream: Any = self._wire.client.ClientChannel()
        await self.beat()

    async def beat(self) -> None:
        self._beat.caller.CopyFrom(self._wire.caller())
        await self._stream.write(self._beat)
        while not (command := await self._stream.read()).HasField("heartbeat_ack"):
            pass
        assert command.heartbeat_ack.code == 0, command.heartbeat_ack.remark

    async def close(self) -> None:
        self._stream.cancel()
        await self._wire.channel.close(None)


class OfRocketmq5:
    """As a push consumer of RocketMQ 5: a stream of telemetry, and heartbeats by calls."""

    def __init__(self, address: str, client_id: str, group: int, topics: list[str]) -> None:
        self._client, self._group = V2Client(address, client_id), group_name(group)
        self._client.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._settings = consumer_settings(self._group)
        del self._settings.subscription.subscriptions[:]
        for name in topics:
            self._settings.subscription.subscriptions.add(
                topic=pb.Resource(name=name), expression=pb.FilterExpression(type=pb.TAG, expression="*")
            )

    async def open(self) -> None:
        await self._client.settle(self._settings)
        await self.beat()

    async def beat(self) -> None:
        request = pb.HeartbeatRequest(group=pb.Resource(name=self._group), client_type=pb.PUSH_CONSUMER)
        answer = await self._client.call("Heartbeat", request)
        assert answer.status.code == pb.OK, answer

    async def close(self) -> None:
        await self._client.close()


KINDS: dict[str, Callable[[str, str, int, list[str]], Client]] = {
    "remoting": Remoting, "v1": OfOurs, "v2": OfRocketmq5,
}  # fmt: skip


async def each(clients: list[Client], step: Callable[[Client], Any]) -> None:
    left = iter(clients)

    async def some() -> None:
        for client in left:
            await step(client)

    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(*(some() for _ in range(AT_A_TIME)))


async def run(kind: str, first: int, count: int, groups: int, topics: int, hosts: int, address: str) -> None:
    """``address`` is HOST:PORT; each client dials one of the loopback's ``hosts`` addresses."""
    port = address.rpartition(":")[2]
    clients = [
        KINDS[kind](
            f"127.0.0.{1 + number % hosts}:{port}", f"{kind}-{number:05d}@many", number % groups,
            topics_of(number % groups, topics),
        )
        for number in range(first, first + count)
    ]  # fmt: skip
    await each(clients, lambda client: client.open())
    print("connected", flush=True)
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if line == "close":
            await each(clients, lambda client: client.close())
            print("closed", flush=True)
            return
        await each(clients, lambda client: client.beat())
        print("beaten", flush=True)


if __name__ == "__main__":
    kind, first, count, groups, topics, hosts, address = sys.argv[1:]
    asyncio.run(run(kind, int(first), int(count), int(groups), int(topics), int(hosts), address))
