"""Hostile inputs to every call of ``apache.rocketmq.v2.MessagingService``."""

import asyncio
import gc
import random
from typing import Any

import grpc.aio
from dejamq_proto.v2 import messages_pb2 as pb
from dejamq_proto.v2.methods import CLIENT_ID, LANGUAGE, MOST_BYTES, SERVICE, STREAMS, UNARY, VERSION
from google.protobuf.message import DecodeError
from hostile import CLIENTS, WORDS, Hostile, Method
from hostile_attack import ANSWER_S, Told, by_workers

WORKERS, STREAM_S = 16, 2.0
LONGEST_ANSWER = 2100
CALLS: dict[str, Any] = {name: kinds[0] for name, kinds in (UNARY | STREAMS).items()}
ANSWERS: dict[str, Any] = {name: kinds[1] for name, kinds in (UNARY | STREAMS).items()}
NAMES = [word for word in WORDS if word.isascii() and word.isprintable() and len(word) < 1000]
LANGUAGES = ("PYTHON", "JAVA", "GO", "", "x" * 500)
REFUSED = {grpc.StatusCode.INVALID_ARGUMENT}


class V2Attack:
    """Most requests are legal protobuf with absurd values; some are damaged, some have no headers."""

    def __init__(self, broker: str, hostile: Hostile, seed: int) -> None:
        self._broker, self._hostile, self._random = broker, hostile, random.Random(seed)
        self._channels: list[Any] = []
        self.told = Told()

    async def run(self, inputs: int) -> None:
        self._channels = [grpc.aio.insecure_channel(self._broker, [("x", number)]) for number in range(4)]
        try:
            await by_workers(self.told, inputs, WORKERS, self._one)
        finally:
            for channel in self._channels:
                await channel.close(None)
            gc.collect()  # a call that was left keeps its channel's connection until then

    async def _one(self) -> None:
        channel = self._random.choice(self._channels)
        if self._random.random() < 0.03:
            await self._telemetry(channel)
            return
        name = self._random.choice(("SendMessage", *CALLS))
        path = f"/{SERVICE}/{name}"
        frame = self._hostile.frame(Method(path, SERVICE, CALLS[name].DESCRIPTOR, False))[:MOST_BYTES]
        try:
            if name in UNARY:
                raw = await channel.unary_unary(path)(frame, metadata=self._headers(), timeout=ANSWER_S)
                self._judge(name, frame, raw)
                self.told.reached("answered")
            else:
                async for raw in channel.unary_stream(path)(frame, metadata=self._headers(), timeout=STREAM_S):
                    self._judge(name, frame, raw)
                self.told.reached("answered by a stream")
        except grpc.aio.AioRpcError as error:
            if name in STREAMS and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self.told.outcomes["held"] += 1
            else:
                self._wrong(name, frame, f"{error.code()} {error.details()!r}")

    async def _telemetry(self, channel: Any) -> None:
        """Some frames, then the end or none. Each answer is to one of them; so is a refusal."""
        method = Method("", SERVICE, pb.TelemetryCommand.DESCRIPTOR, True)
        frames = [self._hostile.frame(method)[:MOST_BYTES] for _ in range(self._random.choice((1, 3)))]
        call = channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=self._headers())
        try:
            async with asyncio.timeout(STREAM_S):
                for frame in frames:
                    await call.write(frame)
                await call.done_writing()
                while isinstance(raw := await call.read(), bytes):
                    pb.TelemetryCommand.FromString(raw)
                    self.told.reached("answered by telemetry")
            if await call.code() is not grpc.StatusCode.OK:
                self._refused(await call.code(), await call.details(), frames)
        except TimeoutError:
            self.told.outcomes["left open"] += 1
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._refused(await call.code(), await call.details(), frames)
        finally:
            call.cancel()

    def _refused(self, code: Any, details: str | None, frames: list[bytes]) -> None:
        if code in REFUSED and details and len(details) < LONGEST_ANSWER:
            self.told.reached("telemetry refused")
        elif code is not grpc.StatusCode.INTERNAL:  # ended while it was written to
            self._wrong("Telemetry", b"|".join(frames), f"{code} {details!r}")

    def _headers(self) -> tuple[tuple[str, str], ...]:
        if self._random.random() < 0.02:
            return ()
        client = self._random.choice(CLIENTS if self._random.random() < 0.9 else NAMES)
        return (CLIENT_ID, client), (LANGUAGE, self._random.choice(LANGUAGES)), (VERSION, "5.1.2")

    def _judge(self, name: str, frame: bytes, raw: bytes) -> None:
        """Each answer has a status with a code, and its text is short; a stream's messages have none."""
        try:
            answer = ANSWERS[name].FromString(raw)
        except DecodeError as error:
            self._wrong(name, frame, repr(error))
            return
        if name == "ReceiveMessage" and answer.WhichOneof("content") != "status":
            return
        if name == "PullMessage" and answer.WhichOneof("content") != "status":
            return
        if not answer.status.code or len(answer.status.message) > LONGEST_ANSWER:
            self._wrong(name, frame, f"status {answer.status!r:.300}")

    def _wrong(self, name: str, frame: bytes, text: str) -> None:
        self.told.wrong.append(f"{name}: {text} to {frame[:3000].hex()}")
