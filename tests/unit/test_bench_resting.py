"""Servers that are not measured stand still while another one is."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_lab.bench.rounds import resting
from dejamq_lab.cluster.waiting import until


@pytest.fixture
def gone() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def stands_still(server: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_a_server_that_rests_stands_still_until_the_measurement_has_ended(
    server: subprocess.Popen[bytes],
) -> None:
    async with resting([server.pid], awake_s=0):
        assert await until(lambda: stands_still(server), 5)
    assert await until(lambda: not stands_still(server), 5)


async def test_a_server_goes_on_after_a_measurement_that_failed(server: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        async with resting([server.pid], awake_s=0):
            assert await until(lambda: stands_still(server), 5)
            raise ZeroDivisionError
    assert await until(lambda: not stands_still(server), 5)


async def test_a_server_that_has_ended_keeps_the_others_from_nothing(
    gone: int, server: subprocess.Popen[bytes]
) -> None:
    async with resting([gone, server.pid], awake_s=0):
        assert await until(lambda: stands_still(server), 5)
