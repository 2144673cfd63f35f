"""Limits of unfinished frames at the doors beside gRPC's: their bytes together, and the time of each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from broker_wire import running, until
from dejamq_broker.app import Broker
from dejamq_proto.fast_pb2 import Hello, Welcome
from dejamq_proto.remoting import requests as r
from dejamq_proto.remoting.frames import MAX_FRAME_BYTES, ONEWAY, encode
from dejamq_proto.remoting.header import Command
from dejamq_proto.serving import half_frames
from dejamq_proto.wire.frame_stream import FrameStream
from remoting_wire import RemotingClient, a_send, remoting

KIB = 1 << 10


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


def begin_frame(client: RemotingClient, size: int) -> None:
    """Announce a frame of 16 MiB, and send so much of it."""
    client.writer.write((MAX_FRAME_BYTES - 4).to_bytes(4) + bytes(size))


async def test_a_frame_that_does_not_become_whole_in_its_time_ends_its_connection(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_frames, "HALF_FRAME_S", 0.2)
    async with remoting(broker.address) as client, remoting(broker.address) as other:
        await other.ask(r.GET_ALL_TOPIC_CONFIG)
        begin_frame(client, 1)
        async with asyncio.timeout(10):
            while not client.closed.is_set():  # a byte now and then is no frame either
                client.writer.write(b"x")
                await asyncio.sleep(0.01)
        await other.ask(r.GET_ALL_TOPIC_CONFIG)
        assert not broker.remoting.halves.bytes


async def test_frames_that_become_whole_one_after_the_other_have_each_their_own_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_frames, "HALF_FRAME_S", 0.4)
    ext = {key: str(value) for key, value in a_send().items()}
    frame = encode(Command(code=r.SEND_MESSAGE_V2.code, ext=ext, body=b"x"))
    async with remoting(broker.address) as client:
        stream = frame * 12
        for at in range(0, len(stream), len(frame) // 2 + 1):  # the bytes end within a frame, mostly
            client.writer.write(stream[at : at + len(frame) // 2 + 1])
            await asyncio.sleep(0.05)
        await until(lambda: broker.domain.store.max_offset("t", 0) == 12)
        assert not client.closed.is_set()


async def test_over_the_budget_the_oldest_unfinished_frame_makes_room(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(half_frames, "MOST_HALF_BYTES", 1000 * KIB)
    async with AsyncExitStack() as open_:
        clients = [await open_.enter_async_context(remoting(broker.address)) for _ in range(6)]
        for number, client in enumerate(clients):
            begin_frame(client, 250 * KIB)
            most = min(number + 1, 3)
            await until(lambda most=most, number=number: broker.remoting.halves.bytes >= most * 250 * KIB)
            await until(lambda number=number: clients[max(number - 3, 0)].closed.is_set() or number < 3)
        assert [client.closed.is_set() for client in clients] == [True, True, True, False, False, False]
        assert broker.remoting.halves.bytes <= half_frames.MOST_HALF_BYTES


async def test_a_fast_frame_has_the_same_limits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_frames, "HALF_FRAME_S", 0.2)
    host, _, port = broker.address.rpartition(":")
    _, stream = await asyncio.get_running_loop().create_connection(FrameStream, host, int(port))
    stream.write(Hello(boot_id=broker.boot_id, method="/dejamq.v1.Send/SendStream").SerializeToString())
    assert Welcome.FromString(bytes(await stream.read())).code == 0
    await asyncio.sleep(0.3)
    assert broker.fast.connections == 1  # that says nothing, which is no unfinished frame
    stream.transport.write((1 << 20).to_bytes(4) + bytes(100 * KIB))
    await until(lambda: broker.fast.halves.bytes == 100 * KIB)
    await until(lambda: not broker.fast.connections)
    assert not broker.fast.halves.bytes
    stream.fail("enough")


async def test_what_waits_for_a_client_to_read_is_done_however_often_the_connection_fills(broker: Broker) -> None:
    done: list[str] = []
    async with remoting(broker.address) as client:
        await client.ask(r.GET_ALL_TOPIC_CONFIG)
        (connection,) = broker.remoting.connections
        client.stop_reading()
        large = Command(code=1, flag=ONEWAY, body=bytes(8 << 20))

        def fill_again() -> None:
            connection.send(large)
            connection.send(large)
            done.append("filled")
            connection.when_it_reads(lambda: done.append("put off meanwhile"))

        def fail() -> None:
            done.append("failed")
            raise RuntimeError

        connection.send(large)
        connection.send(large)
        await until(lambda: connection.full)
        for step in (fill_again, fail, lambda: done.append("put off before")):
            connection.when_it_reads(step)
        assert not done
        client.read_again()
        await until(lambda: len(done) == 4)
        await client.ask(r.GET_ALL_TOPIC_CONFIG)
    assert done == ["filled", "failed", "put off before", "put off meanwhile"]


async def test_a_connection_without_an_unfinished_frame_counts_for_nothing(broker: Broker) -> None:
    async with remoting(broker.address) as client:
        begin_frame(client, 10 * KIB)
        await until(lambda: broker.remoting.halves.bytes > 10 * KIB)
    await until(lambda: not broker.remoting.halves.bytes)
