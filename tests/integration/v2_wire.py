"""A plain client of ``apache.rocketmq.v2`` for tests: one channel of gRPC, and our own messages."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import SERVICE, UNARY
from dejamq_proto.v2.queues import endpoints_of

WAIT_S = 20
NUMBERS = itertools.count(1)


class V2Client:
    """``told``: what came by the stream of telemetry."""

    def __init__(self, address: str, client_id: str = "client-a", language: str = "PYTHON") -> None:
        self.address, self.client_id = address, client_id
        self.channel: Any = grpc.aio.insecure_channel(address)
        self.headers: tuple[tuple[str, str], ...] = (
            ("x-mq-client-id", client_id), ("x-mq-language", language), ("x-mq-client-version", "5.1.2"),
        )  # fmt: skip
        self.told: asyncio.Queue[pb.TelemetryCommand] = asyncio.Queue()
        self.up: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._stream: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def call(self, name: str, request: Any, *, raw: bytes | None = None, headers: Any = None) -> Any:
        method = self.channel.unary_unary(f"/{SERVICE}/{name}")
        sent = request.SerializeToString() if raw is None else raw
        metadata = self.headers if headers is None else headers
        return UNARY[name][1].FromString(await method(sent, metadata=metadata, timeout=WAIT_S))

    async def stream(self, name: str, request: Any, timeout_s: float = WAIT_S) -> list[Any]:
        kinds: dict[str, Any] = {"ReceiveMessage": pb.ReceiveMessageResponse, "PullMessage": pb.PullMessageResponse}
        method = self.channel.unary_stream(f"/{SERVICE}/{name}")
        frames = method(request.SerializeToString(), metadata=self.headers, timeout=timeout_s)
        return [kinds[name].FromString(raw) async for raw in frames]

    async def route(self, topic: str) -> pb.QueryRouteResponse:
        request = pb.QueryRouteRequest(topic=pb.Resource(name=topic), endpoints=endpoints_of(self.address))
        found: pb.QueryRouteResponse = await self.call("QueryRoute", request)
        return found

    async def send(self, *messages: pb.Message) -> pb.SendMessageResponse:
        answer: pb.SendMessageResponse = await self.call("SendMessage", pb.SendMessageRequest(messages=messages))
        return answer

    async def receive(
        self, topic: str = "orders", group: str = "g", *, invisible_s: float | None = 30, wait_s: float = 5,
        expression: str = "*", kind: "pb.FilterType.ValueType" = pb.TAG, attempt_id: str = "", batch: int = 32,
    ) -> tuple[pb.Status, list[pb.Message]]:  # fmt: skip
        """``invisible_s`` None: as push consumers ask."""
        request = pb.ReceiveMessageRequest(
            group=pb.Resource(name=group), message_queue=pb.MessageQueue(topic=pb.Resource(name=topic)),
            filter_expression=pb.FilterExpression(type=kind, expression=expression), batch_size=batch,
            auto_renew=invisible_s is None,
        )  # fmt: skip
        request.long_polling_timeout.FromMilliseconds(round(wait_s * 1000))
        if invisible_s is not None:
            request.invisible_duration.FromMilliseconds(round(invisible_s * 1000))
        if attempt_id:
            request.attempt_id = attempt_id
        answers = await self.stream("ReceiveMessage", request)
        (status,) = (each.status for each in answers if each.WhichOneof("content") == "status")
        return status, [each.message for each in answers if each.WhichOneof("content") == "message"]

    async def ack(self, *messages: pb.Message, group: str = "g") -> pb.AckMessageResponse:
        entries = [
            pb.AckMessageEntry(
                message_id=each.system_properties.message_id, receipt_handle=each.system_properties.receipt_handle
            )
            for each in messages
        ]
        request = pb.AckMessageRequest(group=pb.Resource(name=group), topic=messages[0].topic, entries=entries)
        answer: pb.AckMessageResponse = await self.call("AckMessage", request)
        return answer

    async def change(
        self, message: pb.Message, invisible_s: float, group: str = "g", handle: str = ""
    ) -> pb.ChangeInvisibleDurationResponse:
        request = pb.ChangeInvisibleDurationRequest(
            group=pb.Resource(name=group), topic=message.topic, message_id=message.system_properties.message_id,
            receipt_handle=handle or message.system_properties.receipt_handle,
        )  # fmt: skip
        request.invisible_duration.FromMilliseconds(round(invisible_s * 1000))
        answer: pb.ChangeInvisibleDurationResponse = await self.call("ChangeInvisibleDuration", request)
        return answer

    async def bury(self, message: pb.Message, group: str = "g") -> pb.ForwardMessageToDeadLetterQueueResponse:
        system = message.system_properties
        request = pb.ForwardMessageToDeadLetterQueueRequest(
            group=pb.Resource(name=group), topic=message.topic, receipt_handle=system.receipt_handle,
            message_id=system.message_id, delivery_attempt=1, max_delivery_attempts=1,
        )  # fmt: skip
        answer: pb.ForwardMessageToDeadLetterQueueResponse = await self.call("ForwardMessageToDeadLetterQueue", request)
        return answer

    def open(self) -> None:
        """A stream of telemetry."""
        self._stream = self.channel.stream_stream(f"/{SERVICE}/Telemetry")(self._frames(), metadata=self.headers)
        self._reading = asyncio.create_task(self._read())

    async def settle(self, settings: pb.Settings) -> pb.TelemetryCommand:
        """The answer to these settings."""
        if self._stream is None:
            self.open()
        self.up.put_nowait(pb.TelemetryCommand(settings=settings).SerializeToString())
        async with asyncio.timeout(WAIT_S):
            return await self.told.get()

    async def ended(self) -> None:
        """Until the server ended the stream. Raises what it ended it with."""
        assert self._reading is not None
        await asyncio.wait_for(self._reading, WAIT_S)

    async def close(self) -> None:
        """Half-close the stream, wait for its end, close the channel."""
        if self._reading is not None:
            self.up.put_nowait(None)
            await asyncio.wait((self._reading,), timeout=WAIT_S)
        await self.channel.close()

    async def _frames(self) -> AsyncIterator[bytes]:
        while (frame := await self.up.get()) is not None:
            yield frame

    async def _read(self) -> None:
        async for raw in self._stream:
            self.told.put_nowait(pb.TelemetryCommand.FromString(raw))


@asynccontextmanager
async def v2(address: str, client_id: str = "client-a", language: str = "PYTHON") -> AsyncIterator[V2Client]:
    client = V2Client(address, client_id, language)
    try:
        yield client
    finally:
        await client.close()


def message(
    body: bytes = b"x", topic: str = "orders", *, kind: "pb.MessageType.ValueType" = pb.NORMAL, message_id: str = "",
    properties: dict[str, str] | None = None, **system: Any,
) -> pb.Message:  # fmt: skip
    """As an official producer sends it."""
    made = pb.Message(
        topic=pb.Resource(name=topic), body=body, user_properties=properties or {},
        system_properties=pb.SystemProperties(
            message_id=message_id or f"01A2B3C4D5E6F7{next(NUMBERS):020X}", message_type=kind,
            body_encoding=pb.IDENTITY, born_host="here", **system,
        ),
    )  # fmt: skip
    made.system_properties.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
    return made


def consumer_settings(group: str = "g", topic: str = "orders", language: Any = pb.PYTHON) -> pb.Settings:
    entry = pb.SubscriptionEntry(
        topic=pb.Resource(name=topic), expression=pb.FilterExpression(type=pb.TAG, expression="*")
    )
    return pb.Settings(
        client_type=pb.PUSH_CONSUMER, user_agent=pb.UA(language=language),
        subscription=pb.Subscription(group=pb.Resource(name=group), subscriptions=[entry]),
    )  # fmt: skip


def producer_settings(*topics: str) -> pb.Settings:
    publishing = pb.Publishing(topics=[pb.Resource(name=topic) for topic in topics])
    return pb.Settings(client_type=pb.PRODUCER, user_agent=pb.UA(language=pb.PYTHON), publishing=publishing)


def bodies(messages: list[pb.Message]) -> list[bytes]:
    return [each.body for each in messages]


def attempts(messages: list[pb.Message]) -> list[int]:
    return [each.system_properties.delivery_attempt for each in messages]
