"""The attack over gRPC: hostile inputs to every RPC of ours, and what must be true of every answer and of what is left.

An input counts once its answer is here, or its refusal. One that nobody can be sure of is not counted.
"""

import asyncio
import gc
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc.aio
import msgspec
from broker_wire import Wire, a_run, records_of
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline.verify import verify
from dejamq_proto.codes import Code
from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Append
from dejamq_proto.names import check_topic
from dejamq_proto.wire.calling import CODE_KEY, MAX_FRAME_BYTES, dial
from dejamq_proto.wire.fields import BadMessage
from dejamq_proto.wire.messages import SendRun, SendRunResult
from hostile import TOPICS, Hostile, Method, methods
from hostile_servers import Process

WORKERS = 16
ANSWER_S, STREAM_S = 60, 0.3
NAME_SERVER = "dejamq.v1.NameServer"
STORED = {Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT, Code.SYSTEM_ERROR}
CUT_OFF = "Internal error from Core"
"""What a client of gRPC says that was still writing when the server ended the call: the status did not come through."""
MAY_BE_HELD = ("/dejamq.v1.Pull/PullOne", "/dejamq.v1.Pop/Receive")
SWITCHES = ("/dejamq.v1.Admin/UpdateSettings", "/dejamq.v1.Admin/DeleteTopic", "/dejamq.v1.Admin/DeleteGroup")
"""An operator may turn a broker into a useless one, or delete what others use: these get no legal message."""


class Told(msgspec.Struct):
    """What an attack found."""

    inputs: int = 0
    """That reached the server."""
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    wrong: list[str] = []
    not_served: set[str] = set()
    refused: set[int] = set()
    """Numbers of runs that were surely not stored, by the broker's word."""

    def reached(self, outcome: str, inputs: int = 1) -> None:
        self.inputs += inputs
        self.outcomes[outcome] += inputs

    def remember(self, frame: bytes, answer: bytes) -> None:
        """Note which runs the broker says are not stored. A run that is no run has no number."""
        result = SendRunResult.decode(answer)
        self.outcomes[f"run refused: {Code(result.code).name}" if result.code else "run stored"] += 1
        assert result.remark or not result.code, result
        try:
            run = SendRun.decode(frame)
        except BadMessage:
            return
        if result.code not in STORED and run.boot_id == "hostile":
            self.refused.add(run.seq)


class Attack(Protocol):
    """Hostile inputs to one door."""

    told: Told

    async def run(self, inputs: int) -> None:
        """Go on until so many inputs have reached the server since the beginning, or something is wrong."""


async def by_workers(told: Told, inputs: int, workers: int, one: Any) -> None:
    """Call ``one`` again and again, so many at a time."""

    async def work() -> None:
        while told.inputs < inputs and not told.wrong:
            await one()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(workers):
            tasks.create_task(work())


class GrpcAttack:
    """Inputs to every RPC of one broker and one name server, from several connections at once."""

    def __init__(self, broker: str, namesrv: str, hostile: Hostile, seed: int) -> None:
        self._addresses = {True: namesrv, False: broker}
        self._methods = methods()
        self._sends = [each for each in self._methods if "Send" in each.path]
        self._hostile, self._random = hostile, random.Random(seed)
        self._channels: dict[bool, list[grpc.aio.Channel]] = {}
        self._number = 0
        self.told = Told()

    async def run(self, inputs: int) -> None:
        self._channels = {kind: [dial(address) for _ in range(4)] for kind, address in self._addresses.items()}
        try:
            await by_workers(self.told, inputs, WORKERS, self._one)
        finally:
            for channel in [each for channels in self._channels.values() for each in channels]:
                await channel.close(None)
            gc.collect()  # a call that was left keeps its channel's connection until then

    async def _one(self) -> None:
        method = self._methods[self._number % len(self._methods)]
        self._number += 1
        if self._random.random() < 0.3:
            method = self._random.choice(self._sends)
        await (self._stream(method) if method.streams else self._unary(method))

    def _frame(self, method: Method) -> bytes:
        """None is larger than the client's own gRPC would send."""
        frame = self._random.randbytes(20) if method.path in SWITCHES else self._hostile.frame(method)
        return frame[:MAX_FRAME_BYTES]

    def _channel(self, method: Method) -> Any:
        return self._random.choice(self._channels[method.service == NAME_SERVER])

    async def _unary(self, method: Method) -> None:
        frame = self._frame(method)
        try:
            answer = await self._channel(method).unary_unary(method.path)(frame, timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            self._failed(method, frame, error)
            return
        self.told.reached("answered")
        if method.path.endswith("SendOne"):
            self.told.remember(frame, answer)

    async def _stream(self, method: Method) -> None:
        """Some frames, then the end of the client's side, or none, or the connection is simply dropped."""
        frames = [self._frame(method) for _ in range(self._random.choice((1, 2, 5)))]
        call = self._channel(method).stream_stream(method.path)()
        try:
            async with asyncio.timeout(STREAM_S):
                for frame in frames:
                    await call.write(frame)
                if self._random.random() < 0.8:
                    await call.done_writing()
                for frame in frames:
                    answer = await call.read()
                    if isinstance(answer, bytes):
                        self.told.reached("answered")
                        if method.path.endswith("SendStream"):
                            self.told.remember(frame, answer)
        except TimeoutError:
            self.told.outcomes["left open"] += 1
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # ended while it was written to: its status tells why
            if await call.code() is not grpc.StatusCode.OK:
                trailers = await call.trailing_metadata()
                self._judge(method, b"|".join(frames), await call.code(), await call.details(), trailers)
        finally:
            call.cancel()

    def _failed(self, method: Method, frame: bytes, error: grpc.aio.AioRpcError) -> None:
        self._judge(method, frame, error.code(), error.details(), error.trailing_metadata())

    def _judge(self, method: Method, frame: bytes, status: Any, details: str | None, trailers: Any) -> None:
        """A refusal has a code of ours and a sentence; everything else is a fault."""
        if any(key == CODE_KEY for key, _ in trailers or ()) and details:
            self.told.reached("refused")
        elif details == CUT_OFF:
            self.told.reached("ended while it was written to")
        elif status is grpc.StatusCode.UNIMPLEMENTED:
            self.told.not_served.add(method.path)
        elif status is grpc.StatusCode.DEADLINE_EXCEEDED and method.path in MAY_BE_HELD:
            self.told.outcomes["held"] += 1
        else:
            self.told.wrong.append(f"{method.path}: {status} {details!r} to {frame[:3000].hex()}")


async def serves_the_honest(broker: str, number: int) -> None:
    """A client that does nothing wrong sends and reads as ever."""
    async with Wire(broker, client_id="honest") as wire:
        topic = f"honest-{number}"
        assert (await wire.send(a_run(topic, [b"one", b"two"]))).code == 0
        answer = await wire.pull(topic, suspend_ms=5000)
        assert [record.body for record in records_of(answer)] == [b"one", b"two"], answer


def stored_runs(journal: Path) -> set[int]:
    """Numbers of the hostile runs that were appended."""
    events = lines.events(lines.files_in(journal), Append)
    return {event.request_seq for event in events if event.client_boot_id == "hostile"}


def check_left_behind(refused: set[int], broker: Process) -> None:
    """After the broker stopped: whole files, names that are legal, and nothing stored that was refused.

    ``refused``: numbers of runs.
    """
    report = verify(StorePaths(broker.directory / "store"))
    assert report.status == 0, report
    for table in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        path = broker.directory / "store" / "config" / table
        assert not path.exists() or json.loads(path.read_text())
    check_names(json.loads((broker.directory / "store/config/topics.json").read_text())["topicConfigTable"])
    assert not refused & stored_runs(broker.directory / "journal"), "a run that was refused is stored"


def check_names(topics: Iterable[str]) -> None:
    for topic in topics:
        check_topic(topic)
    assert set(TOPICS) <= set(topics), "no run was stored at all"
