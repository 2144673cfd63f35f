"""Servers that answer real frames as a test tells them: for what a real broker does only when it is unlucky."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import numpy as np
from dejamq import Producer
from dejamq_broker.base.identity import Site
from dejamq_broker.doors.fast.listener import ANY_PORT, FastDoor, Method
from dejamq_proto.client_pb2 import BrokerCommand, Heartbeat, HeartbeatAck, UnregisterRequest, UnregisterResponse
from dejamq_proto.client_pb2_grpc import ClientServicer, add_ClientServicer_to_server
from dejamq_proto.codes import Code, RouteNotFound
from dejamq_proto.fast_pb2_grpc import add_FastServicer_to_server
from dejamq_proto.namesrv_pb2 import BrokerData, GetRouteRequest, GetRouteResponse, QueueData
from dejamq_proto.namesrv_pb2_grpc import NameServerServicer, add_NameServerServicer_to_server
from dejamq_proto.records.record import Record, decode
from dejamq_proto.serving.server import Server
from dejamq_proto.wire.framed import Frame
from dejamq_proto.wire.messages import SendRun, SendRunResult

Answer = Callable[[SendRun], Awaitable[SendRunResult | None]]


def accepted(run: SendRun, **changes: Any) -> SendRunResult:
    count = len(run.sizes)
    answer = SendRunResult(
        seq=run.seq, store_timestamp_ms=1_700_000_000_000, store_host="127.0.0.1:10911",
        queue_offsets=np.arange(count, dtype="<u8"), span_starts=np.zeros(1, "<u4"),
        span_log_offsets=np.array([4096], "<u8"),
    )  # fmt: skip
    for name, value in changes.items():
        setattr(answer, name, value)
    return answer


def refused(code: Code, remark: str = "told to", bad_record: int = -1) -> Answer:
    async def answer(run: SendRun) -> SendRunResult:
        return SendRunResult(seq=run.seq, code=code, remark=remark, bad_record=bad_record)

    return answer


async def break_stream(run: SendRun) -> None:
    """The connection is lost after the run came."""
    return


async def never_answer(run: SendRun) -> SendRunResult:
    await asyncio.Event().wait()
    raise AssertionError


def answer_after(event: asyncio.Event) -> Answer:
    async def answer(run: SendRun) -> SendRunResult:
        await event.wait()
        return accepted(run)

    return answer


class ScriptedBroker(ClientServicer):
    """Accepts every run unless ``script`` says otherwise for the next ones."""

    def __init__(self, name: str) -> None:
        self.name, self.address = name, ""
        self.runs: list[SendRun] = []
        self.script: deque[Answer] = deque()
        self.heartbeats: list[Heartbeat] = []
        self.hang_up = asyncio.Event()  # ends the first heartbeat channel
        self.deaf = False  # heartbeats are not acknowledged
        self.unregistered: list[UnregisterRequest] = []
        self._server = Server(())
        site = Site(cluster="c", broker_name=name, broker_id=0, boot_id=f"{name}-boot")
        self._fast = FastDoor(site, {"/dejamq.v1.Send/SendStream": Method(self._send_frames)}, self._server.acceptor)
        self._server.acceptor.fast = self._fast.open

    async def start(self) -> None:
        handler = grpc.stream_stream_rpc_method_handler(self._send_stream)
        services = grpc.method_handlers_generic_handler("dejamq.v1.Send", {"SendStream": handler})
        self._server.grpc.add_generic_rpc_handlers((services,))
        add_ClientServicer_to_server(self, self._server.grpc)
        add_FastServicer_to_server(self._fast, self._server.grpc)
        self.address = await self._server.start("127.0.0.1:0")
        await self._fast.start(self.address, ANY_PORT)

    async def close(self) -> None:
        await self._fast.close()
        await self._server.stop(0)

    @property
    def records(self) -> list[Record]:
        """All records that came, in order."""
        return [record for run in self.runs for record in self.records_of(run)]

    @staticmethod
    def records_of(run: SendRun) -> list[Record]:
        """The records of one run."""
        found, position = [], 0
        for size in run.sizes.tolist():
            found.append(decode(run.records[0], position))
            position += size
        return found

    @property
    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records]

    async def _send_stream(self, frames: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for frame in frames:
            answer = await self._answer(frame)
            if answer is None:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "scripted break")
                return
            yield answer

    async def _send_frames(self, frames: AsyncIterator[Frame], context: Any) -> None:
        """As ``_send_stream``, at the fast port. A handler that returns ends its connection."""
        async for frame in frames:
            answer = await self._answer(frame)
            if answer is None:
                return
            await context.write(answer)

    async def _answer(self, frame: Frame) -> bytes | None:
        """What the script says to a run."""
        run = SendRun.decode(frame)
        self.runs.append(run)
        result = await (self.script.popleft() if self.script else _accept)(run)
        return None if result is None else result.encode()

    async def ClientChannel(self, request_iterator: Any, context: Any) -> AsyncIterator[BrokerCommand]:
        async for beat in request_iterator:
            self.heartbeats.append(beat)
            if self.deaf:
                continue
            yield BrokerCommand(heartbeat_ack=HeartbeatAck(seq=beat.caller.seq))
            if len(self.heartbeats) == 1:
                await self.hang_up.wait()
                return

    async def Unregister(self, request: UnregisterRequest, context: Any) -> UnregisterResponse:
        self.unregistered.append(request)
        return UnregisterResponse()


async def _accept(run: SendRun) -> SendRunResult:
    return accepted(run)


class ScriptedNamesrv(NameServerServicer):
    """Knows the given topics at the given brokers."""

    def __init__(self, topics: dict[str, list[ScriptedBroker]], queues: int = 2) -> None:
        self.topics, self.queues = topics, queues
        self.asked: list[GetRouteRequest] = []
        self.address = ""
        self._server = Server(())

    async def start(self) -> None:
        add_NameServerServicer_to_server(self, self._server.grpc)
        self.address = await self._server.start("127.0.0.1:0")

    async def close(self) -> None:
        await self._server.stop(0)

    async def GetRoute(self, request: GetRouteRequest, context: Any) -> GetRouteResponse:
        self.asked.append(request)
        if request.topic not in self.topics:
            raise RouteNotFound("no such topic", code=Code.TOPIC_NOT_EXIST)
        brokers = self.topics[request.topic]
        return GetRouteResponse(
            queues=[
                QueueData(broker_name=b.name, read_queue_nums=self.queues, write_queue_nums=self.queues, perm=6)
                for b in brokers
            ],
            brokers=[BrokerData(cluster="c", broker_name=b.name, addresses={0: b.address}) for b in brokers],
        )


@asynccontextmanager
async def scripted(*names: str, **settings: Any) -> AsyncIterator[tuple[Producer, list[ScriptedBroker]]]:
    """A started producer whose topic ``t`` is at scripted brokers of these names."""
    async with AsyncExitStack() as stack:
        brokers = [ScriptedBroker(name) for name in names]  # type: ignore[abstract]  # answers only what is asked here
        for broker in brokers:
            await broker.start()
            stack.push_async_callback(broker.close)
        namesrv = ScriptedNamesrv({"t": brokers})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        stack.push_async_callback(namesrv.close)
        producer = Producer("g", namesrv=namesrv.address, **settings)
        await stack.enter_async_context(producer)
        yield producer, brokers
