"""The attack: hostile inputs to real processes, and what must be true of every answer and of what is left behind."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
from broker_wire import Wire, a_run, records_of, until
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline.verify import verify
from dejamq_lab.cluster.usage import memory_mib
from dejamq_proto.codes import Code
from dejamq_proto.fast_pb2 import Hello, Welcome, WhereRequest
from dejamq_proto.fast_pb2_grpc import FastStub
from dejamq_proto.names import check_topic
from dejamq_proto.wire.calling import CODE_KEY, MAX_FRAME_BYTES, dial
from dejamq_proto.wire.fields import BadFrame
from dejamq_proto.wire.frame_stream import FrameStream
from dejamq_proto.wire.messages import SendRun, SendRunResult
from hostile import TOPICS, Hostile, Method, methods

WORKERS = 16
ANSWER_S, STREAM_S = 60, 0.3
NAME_SERVER = "dejamq.v1.NameServer"
CRASHES = ("Traceback", "Unexpected", "exception was never retrieved", "Exception in", "Fatal")
STORED = {Code.SUCCESS, Code.FLUSH_DISK_TIMEOUT, Code.SLAVE_NOT_AVAILABLE, Code.FLUSH_SLAVE_TIMEOUT, Code.SYSTEM_ERROR}
CUT_OFF = "Internal error from Core"
"""What a client of gRPC says that was still writing when the server ended the call: the status did not come through."""
AT_FAST_PORT = ("/dejamq.v1.Send/SendStream", "/dejamq.v1.Pull/PullStream")
MAY_BE_HELD = ("/dejamq.v1.Pull/PullOne", "/dejamq.v1.Pop/Receive")
SWITCHES = ("/dejamq.v1.Admin/UpdateSettings", "/dejamq.v1.Admin/DeleteTopic", "/dejamq.v1.Admin/DeleteGroup")
"""An operator may turn a broker into a useless one, or delete what others use: these get no legal message."""
SMALL = (
    "mapped_file_size_commit_log=67108864", "disk_check_enable=false", "max_message_size=4194304",
    "max_hash_slot_num=50021", "max_index_num=200000",
)  # fmt: skip


class Told(msgspec.Struct):
    """What an attack found."""

    inputs: int = 0
    outcomes: Counter[str] = msgspec.field(default_factory=Counter)
    wrong: list[str] = []
    not_served: set[str] = set()
    refused: set[int] = set()
    """Numbers of runs that were surely not stored, by the broker's word."""


class Process:
    """A server process with its output in files."""

    def __init__(self, directory: Path, module: str, *flags: str) -> None:
        directory.mkdir(parents=True)
        self.directory, self._out, self.err = directory, directory / "out", directory / "err"
        command = [sys.executable, "-m", module, "--listen", "127.0.0.1:0", *flags]
        with self._out.open("w") as out, self.err.open("w") as err:
            self.popen = subprocess.Popen(command, stdout=out, stderr=err, cwd=directory)

    async def ready(self) -> str:
        await until(lambda: self._out.read_text() or self.popen.poll() is not None, 120)
        assert self.popen.poll() is None, self.err.read_text()
        return self._out.read_text().split()[-1]

    def resident_mib(self) -> float:
        """What it has in memory now, without its mapped files: those are the disk's cache."""
        return memory_mib(self.popen.pid)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.popen.pid}/fd"))

    async def stop(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.popen.wait, 60)

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()


def start_servers(directory: Path) -> tuple[Process, Process]:
    """A name server and a broker that knows none, so that nobody but the attacker speaks to either."""
    settings = [part for one in SMALL for part in ("--set", one)]
    broker = Process(
        directory / "broker", "dejamq_broker", "--namesrv", "", "--store", "store", "--journal-dir", "journal",
        "--set", "enable_property_filter=true", *settings,
    )  # fmt: skip
    return broker, Process(directory / "namesrv", "dejamq_namesrv")


class Attack:
    """Inputs to one broker and one name server, from several connections at once."""

    def __init__(self, broker: str, namesrv: str, seed: int) -> None:
        self._addresses = {True: namesrv, False: broker}
        self._methods = methods()
        self._hostile, self._random = Hostile(seed), random.Random(seed)
        self._channels: dict[bool, list[grpc.aio.Channel]] = {}
        self.told = Told()

    async def run(self, inputs: int) -> None:
        """Send so many inputs. What is wrong stands in ``told``."""
        self._channels = {kind: [dial(address) for _ in range(4)] for kind, address in self._addresses.items()}
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(self._work(inputs))
        finally:
            for channel in [each for channels in self._channels.values() for each in channels]:
                await channel.close(None)

    async def _work(self, inputs: int) -> None:
        while self.told.inputs < inputs and not self.told.wrong:
            method = self._methods[self.told.inputs % len(self._methods)]
            if self._random.random() < 0.3:
                method = self._random.choice([each for each in self._methods if "Send" in each.path])
            self.told.inputs += 1
            if self._random.random() < 0.001:
                await self._raw_bytes(method)
            elif method.path in AT_FAST_PORT and self._random.random() < 0.5:
                await self._frames(method)
            elif method.streams:
                await self._stream(method)
            else:
                await self._unary(method)

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
        self.told.outcomes["answered"] += 1
        if method.path.endswith("SendOne"):
            self._remember(frame, answer)

    async def _stream(self, method: Method) -> None:
        """Some frames, then the end of the client's side, or none, or the connection is simply dropped."""
        frames = [self._frame(method) for _ in range(self._random.choice((1, 2, 5)))]
        self.told.inputs += len(frames) - 1
        call = self._channel(method).stream_stream(method.path)()
        try:
            async with asyncio.timeout(STREAM_S):
                for frame in frames:
                    await call.write(frame)
                if self._random.random() < 0.8:
                    await call.done_writing()
                for frame in frames:
                    answer = await call.read()
                    if method.path.endswith("SendStream") and isinstance(answer, bytes):
                        self._remember(frame, answer)
        except TimeoutError:
            self.told.outcomes["left open"] += 1
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):  # ended while it was written to: its status tells why
            if await call.code() is not grpc.StatusCode.OK:
                trailers = await call.trailing_metadata()
                self._judge(method, b"|".join(frames), await call.code(), await call.details(), trailers)
        finally:
            call.cancel()

    async def _frames(self, method: Method) -> None:
        """The same past gRPC. A frame that is no request ends the connection, once those before it are answered."""
        frames = [self._frame(method) for _ in range(self._random.choice((1, 2, 5)))]
        self.told.inputs += len(frames) - 1
        where = await FastStub(self._channel(method)).Where(WhereRequest(), timeout=ANSWER_S)
        host = self._addresses[False].rpartition(":")[0]
        _, stream = await asyncio.get_running_loop().create_connection(FrameStream, host, where.port)
        try:
            async with asyncio.timeout(STREAM_S):
                await stream.send(Hello(boot_id=where.boot_id, method=method.path).SerializeToString())
                assert Welcome.FromString(bytes(await stream.read())).code == 0
                for frame in frames:
                    await stream.send(frame)
                for frame in frames:
                    answer = bytes(await stream.read())
                    if method.path.endswith("SendStream"):
                        self._remember(frame, answer)
            self.told.outcomes["answered by frames"] += 1
        except TimeoutError:
            self.told.outcomes["left open"] += 1
        except ConnectionError:
            self.told.outcomes["connection of frames ended"] += 1
        finally:
            stream.fail("left")

    async def _raw_bytes(self, method: Method) -> None:
        """Something that is no gRPC at all."""
        host, _, port = self._addresses[method.service == NAME_SERVER].rpartition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.send(self._random.choice((b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) + os.urandom(200))
        self.told.outcomes["no gRPC"] += 1

    def _failed(self, method: Method, frame: bytes, error: grpc.aio.AioRpcError) -> None:
        self._judge(method, frame, error.code(), error.details(), error.trailing_metadata())

    def _judge(self, method: Method, frame: bytes, status: Any, details: str | None, trailers: Any) -> None:
        """A refusal has a code of ours and a sentence; everything else is a fault."""
        if any(key == CODE_KEY for key, _ in trailers or ()) and details:
            self.told.outcomes["refused"] += 1
        elif details == CUT_OFF:
            self.told.outcomes["ended while it was written to"] += 1
        elif status is grpc.StatusCode.UNIMPLEMENTED:
            self.told.not_served.add(method.path)
        elif status is grpc.StatusCode.DEADLINE_EXCEEDED and method.path in MAY_BE_HELD:
            self.told.outcomes["held"] += 1
        else:
            self.told.wrong.append(f"{method.path}: {status} {details!r} to {frame[:3000].hex()}")

    def _remember(self, frame: bytes, answer: bytes) -> None:
        """Which runs the broker says are not stored. A run that is no run has no number."""
        result = SendRunResult.decode(answer)
        if result.code:
            self.told.outcomes[f"run refused: {Code(result.code).name}"] += 1
            assert result.remark, result
        else:
            self.told.outcomes["run stored"] += 1
        try:
            run = SendRun.decode(frame)
        except BadFrame:
            return
        if result.code not in STORED and run.boot_id == "hostile":
            self.told.refused.add(run.seq)


async def serves_the_honest(broker: str, number: int) -> None:
    """A client that does nothing wrong sends and reads as ever."""
    async with Wire(broker, client_id="honest") as wire:
        topic = f"honest-{number}"
        assert (await wire.send(a_run(topic, [b"one", b"two"]))).code == 0
        answer = await wire.pull(topic, suspend_ms=5000)
        assert [record.body for record in records_of(answer)] == [b"one", b"two"], answer


def log_faults(process: Process) -> list[str]:
    """Lines of its log that no input may cause."""
    lines = process.err.read_text(errors="replace").splitlines()
    return [line for line in lines if any(sign in line for sign in CRASHES)]


def stored_runs(journal: Path) -> set[int]:
    """Numbers of the hostile runs that were appended."""
    events = (json.loads(line) for file in journal.glob("*.jsonl") for line in _lines(file) if '"APPEND"' in line)
    return {int(event["request_seq"]) for event in events if event.get("client_boot_id") == "hostile"}


def _lines(file: Path) -> Iterator[str]:
    with file.open() as lines:
        yield from lines


def check_left_behind(told: Told, broker: Process) -> None:
    """After the broker stopped: whole files, names that are legal, and nothing stored that was refused."""
    report = verify(StorePaths(broker.directory / "store"))
    assert report.status == 0, report
    for table in ("topics.json", "subscriptionGroup.json", "consumerOffset.json"):
        path = broker.directory / "store" / "config" / table
        assert not path.exists() or json.loads(path.read_text())
    check_names(json.loads((broker.directory / "store/config/topics.json").read_text())["topicConfigTable"])
    assert not told.refused & stored_runs(broker.directory / "journal"), "a run that was refused is stored"


def check_names(topics: Iterable[str]) -> None:
    for topic in topics:
        check_topic(topic)
    assert set(TOPICS) <= set(topics), "no run was stored at all"
