"""What tests of the broker speak: its own frames over real connections, without the SDK."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.store import StoreConfig
from dejamq_proto import client_pb2, pull_pb2, send_pb2
from dejamq_proto.client_pb2_grpc import ClientStub
from dejamq_proto.common_pb2 import Caller, QueueKey
from dejamq_proto.names import DIRECT
from dejamq_proto.records.record import Outgoing, Record, decode, encode_properties, tags_code
from dejamq_proto.send_pb2_grpc import SendStub
from dejamq_proto.wire.calling import call, dial
from dejamq_proto.wire.messages import PullAnswer, SendRun, SendRunResult

DEADLINE_MS = 10_000
SMALL = StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20_000, max_hash_slot_num=997,
    max_index_num=4000, disk_check_enable=False,
)  # fmt: skip


def broker_config(directory: Path, **settings: Any) -> BrokerConfig:
    base: dict[str, Any] = {
        "listen": "127.0.0.1:0", "namesrv": "", "store_directory": str(directory), "store": SMALL,
        "broker_fast_failure_enable": False,  # one loop for broker and test: what a test does long is no overload
    }  # fmt: skip
    return BrokerConfig(**(base | settings))


@asynccontextmanager
async def running(directory: Path, **settings: Any) -> AsyncIterator[Broker]:
    broker = Broker(broker_config(directory, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def dialled(broker: Broker) -> str:
    """Where clients of our own dial it: gRPC's own port, or the public one where another process has the port below."""
    return broker.site.advertised.get(DIRECT, broker.address)


async def until(
    holds: Callable[[], Any] | Callable[[], Awaitable[Any]], deadline_s: float = 30,
    why: str = "the condition did not come true in time",
) -> Any:  # fmt: skip
    """Wait until it returns something true, and return that."""
    end = time.monotonic() + deadline_s
    while True:
        value = holds()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, why
        await asyncio.sleep(0.01)


def a_run(topic: str, bodies: list[bytes], *, queue_id: int = 0, tags: str = "", **more: Any) -> SendRun:
    """A run to one queue; ``properties`` are added to every record."""
    properties = ({"TAGS": tags} if tags else {}) | more.pop("properties", {})
    template = Outgoing.to(topic, reconsume_times=more.pop("reconsume_times", 0))
    records = []
    for number, body in enumerate(bodies):
        unique = {"UNIQ_KEY": f"{time.time_ns():024X}{number:08X}"}
        records.append(template.encode(queue_id, 1_700_000_000_000, body, encode_properties(unique | properties)))
    return SendRun(
        client_id="tester", boot_id="tester-boot", seq=more.pop("seq", 1), group="producers",
        queues=[(topic, queue_id)], sizes=np.array([len(record) for record in records], "<u4"),
        tags_codes=np.full(len(records), tags_code(tags), "<i4") if tags else np.empty(0, "<i4"),
        records=records, **more,
    )  # fmt: skip


class Wire:
    """One client's connection to a broker."""

    def __init__(self, address: str, client_id: str = "tester", boot_id: str = "") -> None:
        self.address, self.client_id, self.boot_id = address, client_id, boot_id or f"{client_id}-boot"
        self.channel: Any = dial(address)
        self.client: Any = ClientStub(self.channel)
        self.sends: Any = SendStub(self.channel)
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.channel.close(None)

    def caller(self) -> Caller:
        return Caller(client_id=self.client_id, boot_id=self.boot_id, seq=next(self._numbers))

    async def call(self, method: Any, request: Any) -> Any:
        return await call(method, request, address=self.address, timeout_ms=DEADLINE_MS)

    async def send(self, run: SendRun) -> SendRunResult:
        method: Any = self.channel.unary_unary("/dejamq.v1.Send/SendOne")
        return SendRunResult.decode(await method(run.encode(), timeout=DEADLINE_MS / 1000))

    def send_stream(self) -> Any:
        method: Any = self.channel.stream_stream("/dejamq.v1.Send/SendStream")
        return method(timeout=DEADLINE_MS / 1000)

    def pull_stream(self) -> Any:
        method: Any = self.channel.stream_stream(
            "/dejamq.v1.Pull/PullStream", request_serializer=pull_pb2.PullRequest.SerializeToString
        )
        return method(timeout=DEADLINE_MS / 1000)

    def pull_request(self, topic: str, queue_offset: int, **more: Any) -> pull_pb2.PullRequest:
        fields: dict[str, Any] = {"group": "readers", "queue_id": 0, "max_messages": 32, "max_bytes": 1 << 20} | more
        return pull_pb2.PullRequest(caller=self.caller(), topic=topic, queue_offset=queue_offset, **fields)

    async def pull(self, topic: str, queue_offset: int = 0, **more: Any) -> PullAnswer:
        method: Any = self.channel.unary_unary(
            "/dejamq.v1.Pull/PullOne", request_serializer=pull_pb2.PullRequest.SerializeToString
        )
        request = self.pull_request(topic, queue_offset, **more)
        return PullAnswer.decode(await method(request, timeout=DEADLINE_MS / 1000))

    async def heartbeat_stream(self, *groups: str, topic: str = "t") -> Any:
        """An open client channel whose first heartbeat is acknowledged."""
        stream: Any = self.client.ClientChannel(timeout=DEADLINE_MS / 1000)
        subscription = client_pb2.Subscription(topic=topic, expression="*", version=1)
        consumers = [client_pb2.ConsumerData(group=group, subscriptions=[subscription]) for group in groups]
        await stream.write(client_pb2.Heartbeat(caller=self.caller(), consumers=consumers))
        while not (command := await stream.read()).HasField("heartbeat_ack"):
            pass
        assert command.heartbeat_ack.code == 0
        return stream

    async def commit(self, group: str, topic: str, queue_offset: int, *, oneway: bool = False) -> None:
        request = client_pb2.UpdateOffsetRequest(
            caller=self.caller(), group=group, queue=QueueKey(topic=topic), offset=queue_offset, oneway=oneway
        )
        await self.call(self.client.UpdateOffset, request)

    async def committed(self, group: str, topic: str) -> int:
        request = client_pb2.QueryOffsetRequest(caller=self.caller(), group=group, queue=QueueKey(topic=topic))
        return int((await self.call(self.client.QueryOffset, request)).offset)

    async def send_back(self, group: str, log_offset: int, **more: Any) -> None:
        request = send_pb2.SendBackRequest(caller=self.caller(), group=group, log_offset=log_offset, **more)
        await self.call(self.sends.SendBack, request)


def records_of(answer: PullAnswer) -> list[Record]:
    data, records, at = bytes(answer.records[0]) if answer.records else b"", [], 0
    for size in answer.sizes.tolist():
        records.append(decode(data, at))
        at += size
    return records
