"""Bytes that are no request leave no traceback in the logs of pages, and others are served."""

import asyncio
from pathlib import Path

import pytest
from hostile_servers import Dev, Pages, Process, log_faults
from hostile_well import get

pytestmark = pytest.mark.process

HEAD = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
ROUNDS = 20


def ways(path: bytes) -> list[bytes]:
    """A body that is none, one that ends early, a second request that is none, an upgrade."""
    post, asked = HEAD % path, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return [
        post + CHUNKED + b"zz\r\n", post + b"Content-Length: 99\r\n\r\nx", post + CHUNKED + b"5\r\nab",
        asked + b"\x00\r\n\r\n",
        asked * 3 + b"\x00\x01\r\n\r\n", UPGRADE, UPGRADE + b"\xff" * 99,
    ]  # fmt: skip


async def knock(address: str, data: bytes, *, wait: bool) -> None:
    """``wait``: read until the end; else leave at once."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(30):
            while wait and await reader.read(1 << 16):
                pass
    except ConnectionError:
        pass
    writer.close()


async def attack(process: Process, address: str, path: bytes, page: str) -> None:
    for _ in range(ROUNDS):
        await asyncio.gather(*(knock(address, data, wait=wait) for data in ways(path) for wait in (True, False)))
    assert (await get(address, page))[0] == 200
    assert await process.stop() == 0
    log = process.err.read_text()
    assert not log_faults(process), log[-3000:]
    assert "pip install" not in log


async def test_the_control_page_logs_no_traceback_of_bytes_that_are_no_request(tmp_path: Path) -> None:
    dev = Dev(tmp_path / "dev")
    try:
        await attack(dev, await dev.control(), b"/faults", "/health")
    finally:
        dev.kill()


async def test_the_console_logs_no_traceback_of_bytes_that_are_no_request(tmp_path: Path) -> None:
    pages = Pages(tmp_path / "console", "127.0.0.1:1", "--allow-changes")
    try:
        await attack(pages, await pages.ready(), b"/groups/g/replay", "/causes")
    finally:
        pages.kill()
