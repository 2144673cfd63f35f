"""One start of a client of ``apache.rocketmq.v2`` as the official ones are, which also writes a journal.

It tells its start and the number of each call in headers, so that brokers' lines have them. Source: RocketMQ
``apache/rocketmq-clients``, ``ClientImpl``.
"""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc.aio
from dejamq.values.config import ClientConfig
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError
from dejamq_proto.journal.events import State
from dejamq_proto.journal.writer import new_boot_id, open_journal
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import BOOT_ID, CLIENT_ID, LANGUAGE, SEQ, SERVICE, UNARY, VERSION
from dejamq_proto.v2.queues import endpoints_of

CALL_S, SETTINGS_S = 3.0, 10.0
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class V2Client:
    """Belongs to one event loop. Calls raise BrokerUnavailable for no answer, DejamqError for a status but OK."""

    def __init__(self, namesrv: str, config: ClientConfig, *, role: str) -> None:
        """``namesrv``: the address that it is given, the first of them. ``role`` names the journal."""
        self.first, self.config = namesrv.partition(";")[0], config
        self.client_id = config.client_id or f"v2@{os.getpid()}@{time.time_ns()}"
        self.boot_id = new_boot_id()
        self.journal = open_journal(
            config.journal_dir, role=role, process=self.client_id, boot_id=self.boot_id, level=config.journal_level,
        )  # fmt: skip
        self._channels: dict[str, Any] = {}
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._beating: asyncio.Task[None] | None = None
        self._closed = False

    def next_seq(self) -> int:
        """The number of the next call: with ``boot_id`` its name in every journal."""
        return next(self._numbers)

    async def call(self, address: str, name: str, request: Any, *, seq: int = 0, timeout_s: float = CALL_S) -> Any:
        """The answer. ``seq``: the number of the call, when it was taken before to be written down."""
        method = self._channel(address).unary_unary(f"/{SERVICE}/{name}")
        headers = self._headers(seq or self.next_seq())
        try:
            raw = await method(request.SerializeToString(), metadata=headers, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _no_answer(address, error) from None
        answer = UNARY[name][1].FromString(raw)
        _check(answer.status)
        return answer

    async def receive(self, address: str, request: pb.ReceiveMessageRequest, timeout_s: float) -> list[pb.Message]:
        """What one ReceiveMessage brings, [] for nothing."""
        method = self._channel(address).unary_stream(f"/{SERVICE}/ReceiveMessage")
        frames = method(request.SerializeToString(), metadata=self._headers(self.next_seq()), timeout=timeout_s)
        found = []
        try:
            async for raw in frames:
                frame = pb.ReceiveMessageResponse.FromString(raw)
                if frame.WhichOneof("content") == "message":
                    found.append(frame.message)
                elif frame.HasField("status") and frame.status.code != pb.MESSAGE_NOT_FOUND:
                    _check(frame.status)
        except grpc.aio.AioRpcError as error:
            raise _no_answer(address, error) from None
        finally:
            frames.cancel()
        return found

    async def queues(self, topic: str) -> list[tuple[str, str]]:
        """Name and address of the broker of each queue of a topic, by the first address."""
        asked = pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=endpoints_of(self.first))
        route = await self.call(self.first, "QueryRoute", asked)
        return [(queue.broker.name, _address(queue.broker.endpoints)) for queue in route.message_queues]

    async def settle(self, address: str, settings: pb.Settings) -> pb.Settings:
        """The settings as this broker completes them; the stream stays open. Raises BrokerUnavailable for none."""
        told: asyncio.Future[pb.Settings] = asyncio.get_running_loop().create_future()
        stream = asyncio.create_task(self._telemetry(address, settings, told))
        self._streams[address] = stream
        await asyncio.wait((stream, told), timeout=SETTINGS_S, return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            raise BrokerUnavailable(f"{address} did not answer to the client's settings")
        return told.result()

    def beat(self, addresses: list[str], group: str, interval_s: float) -> None:
        """Tell these brokers now and then that the client is there."""
        self._beating = asyncio.create_task(self._beat(addresses, pb.HeartbeatRequest(group=pb.Resource(name=group)),
                                                       interval_s))  # fmt: skip

    async def started(self) -> None:
        """Written when the client serves."""
        level = f"level={self.journal.level}"
        self.journal.write(State(state="started", client_id=self.client_id, reason=level))

    async def close(self, *, goodbye: str = "") -> None:
        """Say that it ends (``goodbye`` names its group), to every broker that it knows, and leave. Twice is once."""
        if self._closed:
            return
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()
        asked = pb.NotifyClientTerminationRequest(group=pb.Resource(name=goodbye))
        for address in tuple(self._streams):
            with suppress(DejamqError):
                await self.call(address, "NotifyClientTermination", asked)
        self.journal.write(State(state="closed", client_id=self.client_id))
        self.journal.close()
        for stream in self._streams.values():
            stream.cancel()
        for channel in self._channels.values():
            await channel.close()

    def _channel(self, address: str) -> Any:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address)
        return self._channels[address]

    def _headers(self, seq: int) -> tuple[tuple[str, str], ...]:
        return (
            (CLIENT_ID, self.client_id), (LANGUAGE, "PYTHON"), (VERSION, "5.1.2"), (BOOT_ID, self.boot_id),
            (SEQ, str(seq)),
        )  # fmt: skip

    async def _telemetry(self, address: str, settings: pb.Settings, told: "asyncio.Future[pb.Settings]") -> None:
        ended = asyncio.Event()

        async def frames() -> AsyncIterator[bytes]:
            yield pb.TelemetryCommand(settings=settings).SerializeToString()
            await ended.wait()

        method = self._channel(address).stream_stream(f"/{SERVICE}/Telemetry")
        try:
            async for raw in method(frames(), metadata=self._headers(self.next_seq())):
                command = pb.TelemetryCommand.FromString(raw)
                if command.WhichOneof("command") == "settings" and not told.done():
                    told.set_result(command.settings)
        except grpc.aio.AioRpcError:
            pass  # the broker is away; heartbeats go on
        finally:
            ended.set()

    async def _beat(self, addresses: list[str], request: pb.HeartbeatRequest, interval_s: float) -> None:
        while True:
            for address in addresses:
                with suppress(DejamqError):
                    await self.call(address, "Heartbeat", request)
            await asyncio.sleep(interval_s)


def _address(endpoints: pb.Endpoints) -> str:
    return f"{endpoints.addresses[0].host}:{endpoints.addresses[0].port}"


def _no_answer(address: str, error: grpc.aio.AioRpcError) -> DejamqError:
    text = f"{address}: {error.code().name}, {error.details()}"
    return BrokerUnavailable(text) if error.code() in GONE else DejamqError(text, code=Code.SYSTEM_ERROR)


def _check(status: pb.Status) -> None:
    if status.code not in (pb.OK, pb.MULTIPLE_RESULTS):
        raise DejamqError(f"{pb.Code.Name(status.code)}: {status.message}", code=Code.SYSTEM_ERROR)
