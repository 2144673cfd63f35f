"""Clients that do not read, do not answer, or are many: what the broker keeps for them has an end, and others are
served. Memory is measured at a broker process of its own.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from broker_wire import Wire, a_run, records_of, until
from dejamq_proto.client_pb2 import ConsumerData, Heartbeat
from dejamq_proto.codes import Code
from dejamq_proto.common_pb2 import Caller
from dejamq_proto.serving.server import STREAM_WINDOW_BYTES, Server
from dejamq_proto.wire.calling import dial
from dejamq_proto.wire.messages import PullAnswer
from hostile_servers import Process
from relay import Relay

pytestmark = pytest.mark.process

BODY = b"x" * 16_000
BATCH = 32
STREAMS, QUESTIONS = 20, 1000
"""As many streams, and as many questions on each: their answers would take gigabytes."""
LONG = 50_000
ROOM_MIB = 350
"""What all the clients of one test may cost."""
HELD = 1000


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One broker for all: what a test leaves behind is the next one's trouble."""
    process = Process(
        tmp_path_factory.mktemp("slow") / "broker", "dejamq_broker", "--namesrv", "", "--store", "store",
        "--set", "mapped_file_size_commit_log=67108864", "--set", "disk_check_enable=false",
        "--set", f"max_held_pulls={HELD}",
    )  # fmt: skip
    yield process
    process.kill()


@pytest.fixture
async def broker(process: Process) -> Process:
    await fill(await process.ready())
    return process


async def fill(address: str) -> None:
    async with Wire(address) as wire:
        assert (await wire.send(a_run("t", [BODY] * BATCH))).code == 0


async def serves_others(address: str) -> None:
    """Sends and reads of somebody else go on."""
    async with Wire(address, client_id="other") as wire:
        assert (await wire.send(a_run("other", [b"x"]))).code == 0
        assert records_of(await wire.pull("other"))


async def write_all(call: Any, frames: list[Any]) -> None:
    """As long as the broker takes them."""
    for frame in frames:
        await call.write(frame)


@asynccontextmanager
async def unread(calls: list[Any], frames: list[Any], seconds: float = 2.0) -> AsyncIterator[None]:
    """Write to all of them, read from none: all is written, or the broker takes no more."""
    writers = [asyncio.create_task(write_all(call, frames)) for call in calls]
    await asyncio.wait(writers, timeout=seconds)
    yield
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    for call in calls:
        call.cancel()


async def test_a_stream_that_nobody_reads_takes_its_window_and_no_more_however_slow_the_machine_is() -> None:
    async def look_away(_: Any, context: Any) -> None:
        await asyncio.Event().wait()

    server = Server(())
    handler = grpc.stream_stream_rpc_method_handler(look_away)
    server.grpc.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", {"Look": handler}),))
    channel: Any = dial(await server.start("127.0.0.1:0"))
    taken = [0] * STREAMS
    frame = b"x" * LONG

    async def write(number: int) -> None:
        call = channel.stream_stream("/t/Look")()
        while True:
            await call.write(frame)
            taken[number] += len(frame)

    try:
        writers = [asyncio.create_task(write(number)) for number in range(STREAMS)]
        await until(lambda: min(taken) > STREAM_WINDOW_BYTES - 2 * LONG, 20)
        await asyncio.wait(writers, timeout=0.5)
        print(sorted(taken))
        assert max(taken) < 2 * STREAM_WINDOW_BYTES
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await channel.close(None)
        await server.stop(0)


async def test_pulls_whose_answers_are_not_read_take_no_memory(broker: Process) -> None:
    address = await broker.ready()
    before = broker.resident_mib()
    async with Wire(address) as wire:
        calls = [wire.pull_stream() for _ in range(STREAMS)]
        large = [wire.pull_request("t", 0, expression="|" * LONG + "|a") for _ in range(QUESTIONS)]
        async with unread(calls, [wire.pull_request("t", 0) for _ in range(50)] + large):
            grown = broker.resident_mib() - before
            await serves_others(address)
    print(f"{grown:.0f} MiB")
    assert grown < ROOM_MIB


async def test_sends_whose_answers_are_not_read_take_no_memory(broker: Process) -> None:
    address = await broker.ready()
    before = broker.resident_mib()
    async with Wire(address) as wire:
        calls = [wire.send_stream() for _ in range(STREAMS)]
        async with unread(calls, [a_run("t", [b"x"] * 50, seq=seq).encode() for seq in range(1, QUESTIONS)]):
            grown = broker.resident_mib() - before
            await serves_others(address)
    print(f"{grown:.0f} MiB")
    assert grown < ROOM_MIB


async def test_heartbeats_whose_answers_are_not_read_take_no_memory(broker: Process) -> None:
    address = await broker.ready()
    before = broker.resident_mib()
    async with Wire(address) as wire:
        calls = [wire.client.ClientChannel(timeout=60) for _ in range(STREAMS)]
        refused = ConsumerData(group="g" * LONG)  # the answer says which group it was
        beat = Heartbeat(caller=Caller(client_id="c", boot_id="b", seq=1), consumers=[refused])
        async with unread(calls, [beat] * QUESTIONS):
            grown = broker.resident_mib() - before
            await serves_others(address)
    print(f"{grown:.0f} MiB")
    assert grown < ROOM_MIB


async def test_more_pulls_than_may_be_held_are_answered_so_and_those_held_get_what_comes(broker: Process) -> None:
    address = await broker.ready()
    async with Wire(address) as wire:
        end = (await wire.pull("t")).max_offset
        streams = [wire.pull_stream() for _ in range(3)]
        for stream in streams[:2]:
            for _ in range(HELD // 2):
                await stream.write(wire.pull_request("t", end, suspend_ms=60_000))
            await stream.write(wire.pull_request("t", 0))
            assert PullAnswer.decode(await stream.read()).code == 0  # those before it are held by now
        for _ in range(100):
            await streams[2].write(wire.pull_request("t", end, suspend_ms=60_000))
            answer = PullAnswer.decode(await streams[2].read())
            assert answer.code == Code.POLLING_FULL
            assert answer.remark.startswith("[POLLING_FULL]")
        await wire.send(a_run("t", [b"news"]))
        for stream in streams[:2]:
            for _ in range(HELD // 2):
                assert records_of(PullAnswer.decode(await stream.read()))[0].body == b"news"
        await streams[2].write(wire.pull_request("t", end + 1, suspend_ms=1))
        assert PullAnswer.decode(await streams[2].read()).code == Code.PULL_NOT_FOUND
        for stream in streams:
            stream.cancel()


async def test_many_connections_cost_little_each_and_nothing_when_they_are_gone(broker: Process) -> None:
    address, many = await broker.ready(), 200
    idle = broker.descriptors()
    before = broker.resident_mib()
    wires = [Wire(address, client_id=f"c{number}") for number in range(many)]
    streams = [await wire.heartbeat_stream("g") for wire in wires]
    each_kib = (broker.resident_mib() - before) * 1024 / many
    for stream in streams:
        stream.cancel()
    for wire in wires:
        await wire.channel.close(None)
    del streams, stream, wires, wire  # gRPC's client lets go of its sockets with the last of its objects
    await until(lambda: broker.descriptors() <= idle + 5, 20)
    print(f"{each_kib:.0f} KiB each")
    assert each_kib < 400
    await serves_others(address)


READER = """
import asyncio, itertools, sys
sys.path.insert(0, sys.argv[2])
from broker_wire import Wire
async def main():
    async with Wire(sys.argv[1], client_id="frozen") as wire:
        streams = [wire.channel.stream_stream("/dejamq.v1.Pull/PullStream")() for _ in range(20)]
        async def read(stream):
            for number in itertools.count():
                await stream.write(wire.pull_request("t", 0).SerializeToString())
                if number > 20:
                    await stream.read()
                    print("read", flush=True)
        await asyncio.gather(*map(read, streams))
asyncio.run(main())
"""


def start_reader(address: str, out: Path) -> "subprocess.Popen[bytes]":
    with out.open("w") as file:
        return subprocess.Popen([sys.executable, "-c", READER, address, str(Path(__file__).parent)], stdout=file)


async def test_a_frozen_client_holds_no_memory_and_goes_on_when_it_thaws(broker: Process, tmp_path: Path) -> None:
    address = await broker.ready()
    out = tmp_path / "read"
    client = start_reader(address, out)
    try:
        await until(lambda: out.stat().st_size > 1000, 20)
        before = broker.resident_mib()
        client.send_signal(signal.SIGSTOP)
        for _ in range(20):
            await fill(address)
        await serves_others(address)
        grown = broker.resident_mib() - before
        frozen = out.stat().st_size
        client.send_signal(signal.SIGCONT)
        await until(lambda: out.stat().st_size > frozen, 20)
    finally:
        os.kill(client.pid, signal.SIGKILL)
        client.wait()
    print(f"{grown:.0f} MiB")
    assert grown < ROOM_MIB


async def test_clients_behind_a_link_that_swallows_hold_no_memory(broker: Process) -> None:
    relay = Relay(await broker.ready())
    address = await relay.start()
    try:
        async with Wire(address) as wire:
            end = (await wire.pull("t")).max_offset
            calls = [wire.pull_stream() for _ in range(STREAMS)]
            for call in calls:
                await call.write(wire.pull_request("t", end, suspend_ms=60_000))
            before = broker.resident_mib()
            relay.go_deaf()
            for _ in range(20):
                await fill(await broker.ready())
            grown = broker.resident_mib() - before
            await serves_others(await broker.ready())
            for call in calls:
                call.cancel()
    finally:
        await relay.close()
    print(f"{grown:.0f} MiB")
    assert grown < ROOM_MIB
