"""The small HTTP server of metrics: how many it serves, and what it needs."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator

import pytest
from dejamq_proto.codes import ConfigError
from dejamq_proto.serving.metric_families import gauge, histogram
from dejamq_proto.serving.metrics import MOST_CLIENTS, MetricsServer, check_library
from prometheus_client.metrics_core import Metric


async def one_metric() -> AsyncIterator[Metric]:
    yield gauge("dejamq_answer", "Of everything.", ("name",), [(("a",), 42)])


async def asked(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionResetError:  # let go of before it was read
        return b""
    finally:
        writer.close()


async def test_it_answers_get_and_head_and_tells_others_what_it_answers() -> None:
    server = MetricsServer(one_metric)
    address = await server.start("127.0.0.1:0")
    try:
        got = await asked(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=")
        assert b'dejamq_answer{name="a"} 42.0' in got
        head = await asked(address, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert b"405 Method Not Allowed" in await asked(address, b"POST /metrics HTTP/1.1\r\n\r\n")
        assert b"404 Not Found" in await asked(address, b"GET /secrets HTTP/1.1\r\n\r\n")
    finally:
        await server.close()
    await server.close()


async def test_those_who_only_connect_are_few_and_end_with_the_server() -> None:
    server = MetricsServer(one_metric)
    host, _, port = (await server.start("127.0.0.1:0")).rpartition(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(MOST_CLIENTS)]
    async with asyncio.timeout(10):
        while len(server._tasks) < MOST_CLIENTS:
            await asyncio.sleep(0.01)
        assert await asked(server.address, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        await server.close()
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()


async def test_what_gathering_fails_with_ends_that_answer_only(caplog: pytest.LogCaptureFixture) -> None:
    tables: dict[str, Metric] = {}

    async def failing() -> AsyncIterator[Metric]:
        yield tables["gone"]

    server = MetricsServer(failing)
    address = await server.start("127.0.0.1:0")
    try:
        assert await asked(address, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        assert "metrics_failed" in caplog.text
        assert b"404" in await asked(address, b"GET / HTTP/1.1\r\n\r\n")
    finally:
        await server.close()


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_library()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'dejamq\[broker\]'"):
        check_library()


def test_a_histogram_counts_up_to_each_bound() -> None:
    made = histogram("dejamq_times", "Of calls.", ("name",), [(("a",), (1, 10), (3, 2, 1), 25.0)])
    values = {
        (sample.name.removeprefix("dejamq_times"), sample.labels.get("le")): sample.value for sample in made.samples
    }
    assert values == {
        ("_bucket", "1"): 3, ("_bucket", "10"): 5, ("_bucket", "+Inf"): 6, ("_count", None): 6, ("_sum", None): 25.0,
    }  # fmt: skip
