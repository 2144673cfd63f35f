"""``dejamq dev``: one process and one port for our own clients and for RocketMQ's."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from dejamq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage
from dejamq_proto.probe import state_of
from dejamq_proto.remoting import requests as r
from remoting_wire import a_send, remoting


@asynccontextmanager
async def dev(*arguments: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Its address and its process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_lab.dev", "--listen", "127.0.0.1:0", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"DEJAMQ_DISK_CHECK_ENABLE": "false"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert line.startswith("ready dev "), line
        yield line.split()[2].rstrip(";"), process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_our_clients_and_rocketmqs_share_topics_at_one_address() -> None:
    async with dev() as (address, _), remoting(address) as client:
        got: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: ReceivedMessage) -> None:
            got.put_nowait(message.body)

        async with Producer("pg", namesrv=address) as producer:
            await producer.send(Message("t", b"ours"))
        assert (await client.ask(r.SEND_MESSAGE_V2, b"theirs", **a_send())).code == 0
        route = msgspec.json.decode((await client.ask(r.GET_ROUTE, topic="t")).body)
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": address}
        consumer = PushConsumer("cg", namesrv=address, consume_from=ConsumeFrom.FIRST_OFFSET)
        consumer.subscribe("t", take)
        async with consumer, asyncio.timeout(20):
            assert {await got.get(), await got.get()} == {b"ours", b"theirs"}


async def test_it_says_what_to_export_and_ends_at_a_signal_with_nothing_left() -> None:
    async with dev() as (address, process):
        assert await state_of(address, timeout_ms=10_000) == "SERVING"
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_a_given_store_keeps_messages(tmp_path: Path) -> None:
    for _ in range(2):
        async with dev("--store", str(tmp_path)) as (address, process), remoting(address) as client:
            sent = await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())
            process.send_signal(signal.SIGTERM)
            await process.wait()
    assert sent.ext["queueOffset"] == "1"


async def advertise(*arguments: str) -> tuple[int | None, str, str]:
    """The exit status of ``dejamq dev advertise``, and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", "dev", "advertise", *arguments,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(50):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_clients_of_a_server_that_runs_are_told_another_address(tmp_path: Path) -> None:
    async with dev() as (address, process), remoting(address) as client:
        assert (await client.ask(r.SEND_MESSAGE_V2, b"x", **a_send())).code == 0
        for port in (32771, 32772):
            said = await advertise(f"localhost:{port}", "--namesrv", address)
            assert said[0] == 0, said
            assert said[1].startswith(f"advertised localhost:{port}; export NAMESRV_ADDR=localhost:{port} ")
            route = msgspec.json.decode((await client.ask(r.GET_ROUTE, topic="t")).body)
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": f"localhost:{port}"}
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert await process.stderr.read() == b""


async def test_an_address_that_cannot_be_is_refused_in_one_line() -> None:
    async with dev() as (address, _):
        status, _, err = await advertise("nonsense", "--namesrv", address)
    assert (status, err.count("\n")) == (2, 1)
    assert "HOST:PORT" in err


async def test_a_server_that_is_not_there_is_said_in_one_line(unused_tcp_port: int) -> None:
    status, _, err = await advertise("localhost:1", "--namesrv", f"127.0.0.1:{unused_tcp_port}")
    assert (status, err.count("\n")) == (1, 1)


def test_bad_use_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dejamq_lab.dev", "--set", "noSuchSetting=1"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stderr[:36]) == (2, "dejamq-dev: unknown setting 'noSuchS")
