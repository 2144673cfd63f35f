"""Overload over real connections: what is answered SYSTEM_BUSY is surely not stored, and what the SDK makes of it."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_wire import Wire, a_run, running, until
from dejamq_broker.app import Broker
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_proto.client_pb2 import UpdateOffsetRequest
from dejamq_proto.codes import Code
from dejamq_proto.common_pb2 import Caller, QueueKey
from dejamq_proto.wire.messages import SendRun, SendRunResult
from journalled import journalled
from test_broker_slow_disk import SlowDisk

STREAM = "/dejamq.v1.Send/SendStream"
SYNC = StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH", disk_check_enable=False)


class Producer(threading.Thread):
    """A client with a thread of its own, so that it goes on while the broker's event loop stands still."""

    def __init__(self, address: str, runs: int) -> None:
        super().__init__()
        self._address, self._runs = address, runs
        self.sent = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.results: list[SendRunResult] = []

    def run(self) -> None:
        channel: Any
        with grpc.insecure_channel(self._address) as channel:
            for frame in channel.stream_stream(STREAM)(self._frames(), timeout=30):
                self.results.append(SendRunResult.decode(frame))

    def _frames(self) -> Any:
        for seq in range(1, self._runs + 1):
            self.go_on.acquire()
            run: SendRun = a_run("t", [b"%d" % seq], seq=seq, sent_ms=time.monotonic_ns() // 1_000_000)
            yield run.encode()
            self.sent.release()


def keep_the_loop(seconds: float) -> None:
    """As a slow step of the broker would."""
    time.sleep(seconds)


def stored(journal: Path) -> list[int]:
    """Numbers of the runs that were appended."""
    return [event["request_seq"] for event in journalled(journal, "APPEND")]


async def send_during_a_stall(broker: Broker, stand_still: Any) -> list[SendRunResult]:
    """One run before, three while the loop stands still, one after; their answers."""
    producer = Producer(broker.address, 5)
    producer.start()
    producer.go_on.release()
    await until(lambda: len(producer.results) == 1)
    stand_still(producer)
    await until(lambda: len(producer.results) == 4)
    producer.go_on.release()
    await asyncio.to_thread(producer.join, 20)
    return producer.results


async def test_runs_that_waited_for_the_loop_are_answered_busy_and_not_stored(tmp_path: Path) -> None:
    def stand_still(producer: Producer) -> None:
        producer.go_on.release(3)
        for _ in range(3):
            producer.sent.acquire()
        keep_the_loop(0.6)

    journal = tmp_path / "journal"
    async with running(tmp_path / "store", journal_dir=str(journal), broker_fast_failure_enable=True) as broker:
        results = await send_during_a_stall(broker, stand_still)
    assert [result.code for result in results] == [0, *[Code.SYSTEM_BUSY] * 3, 0]
    assert all(result.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy") for result in results[1:4])
    assert stored(journal) == [1, 5]


async def test_runs_behind_an_append_that_the_disk_holds_up_are_told_that_it_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MappedFile.write
    held: list[Producer] = []

    def slow(file: MappedFile, at: int, data: Any) -> None:
        if held:
            producer = held.pop()
            producer.go_on.release(2)
            keep_the_loop(1.2)
        real(file, at, data)

    def stand_still(producer: Producer) -> None:
        held.append(producer)
        producer.go_on.release()

    monkeypatch.setattr(MappedFile, "write", slow)
    journal = tmp_path / "journal"
    async with running(tmp_path / "store", journal_dir=str(journal), broker_fast_failure_enable=True) as broker:
        results = await send_during_a_stall(broker, stand_still)
    assert [result.code for result in results] == [0, 0, *[Code.SYSTEM_BUSY] * 2, 0]
    assert all(result.remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy") for result in results[2:4])
    assert stored(journal) == [1, 2, 5]


async def test_runs_that_wait_for_others_that_wait_for_the_disk_are_answered_busy_and_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, journal = SlowDisk(), tmp_path / "journal"
    monkeypatch.setattr("os.fdatasync", disk.fdatasync)
    settings = {"journal_dir": str(journal), "store": SYNC, "broker_fast_failure_enable": True}
    async with running(tmp_path / "store", **settings) as broker, Wire(broker.address) as wire:
        stream = wire.send_stream()
        with disk.held():
            for seq in range(1, 8):
                await stream.write(a_run("t", [b"x"], seq=seq).encode())
            await until(lambda: broker.domain.fast_failure.waiting == 7)
        results = [SendRunResult.decode(await stream.read()) for _ in range(7)]
        assert [(result.seq, result.code) for result in results] == [
            (1, 0), (2, 0), (3, 0), (4, 0), *((seq, Code.SYSTEM_BUSY) for seq in (5, 6, 7))
        ]  # fmt: skip
        await stream.write(a_run("t", [b"x"], seq=8).encode())
        assert SendRunResult.decode(await stream.read()).code == 0
        stream.cancel()
    assert stored(journal) == [1, 2, 3, 4, 8]


async def test_a_call_whose_time_was_over_before_its_turn_is_not_done(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.heartbeat_stream("readers")
        await wire.send(a_run("t", [b"x"]))
        await wire.commit("readers", "t", 0)
        refused: list[grpc.RpcError] = []

        def commit() -> None:
            request = UpdateOffsetRequest(
                caller=Caller(client_id="late", boot_id="late", seq=1), group="readers", queue=QueueKey(topic="t"),
                offset=1,
            )  # fmt: skip
            channel: Any
            with grpc.insecure_channel(broker.address) as channel:
                method = channel.unary_unary("/dejamq.v1.Client/UpdateOffset")
                grpc.channel_ready_future(channel).result(timeout=10)
                connected.set()
                loop_is_kept.wait()
                try:
                    method(request.SerializeToString(), timeout=0.2)
                except grpc.RpcError as error:
                    refused.append(error)

        connected, loop_is_kept = threading.Event(), threading.Event()
        client = threading.Thread(target=commit)
        client.start()
        await asyncio.to_thread(connected.wait)
        loop_is_kept.set()
        client.join(20)  # the broker's loop is this one, and stands still until the client has given up
        assert refused
        assert await wire.committed("readers", "t") == 0
