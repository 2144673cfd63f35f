"""Several clusters that begin at one moment, and the ports of servers that are down."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from dejamq_lab import Cluster
from dejamq_lab.cluster import background
from dejamq_lab.cluster.ports import held_block, hold

pytestmark = pytest.mark.process

ALL_UP = """
import asyncio, sys
from pathlib import Path
from dejamq_lab.cluster import background

async def main(port, *folders):
    background.NAMESRV_PORT, background.BROKER_PORT = int(port), int(port) + 1
    size = background.Size(namesrvs=1, brokers=1)
    await asyncio.gather(*(background.up(Path(folder), size) for folder in folders))

asyncio.run(main(*sys.argv[1:]))
"""
"""The clusters outlive the program: it looks for the usual ports of all of them before any server has one."""


async def test_clusters_that_are_started_at_one_moment_all_come_up_at_ports_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(3)]
    with held_block(0, 1) as port:
        pass
    command = [sys.executable, "-c", ALL_UP, str(port), *map(str, folders)]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=100, check=False)
    clusters = [background.read_state(folder) for folder in folders if (folder / background.STATE_FILE).exists()]
    try:
        assert ran.returncode == 0, ran.stderr
        assert [state for one in clusters for _, state in await background.states(one)] == ["running"] * 6
        assert len({member.address for one in clusters for member in one.processes}) == 6
    finally:
        for one in clusters:
            await background.down(one)


async def test_nobody_gets_the_port_of_a_server_that_is_down(tmp_path: Path) -> None:
    async with Cluster(processes=True, brokers=1, namesrvs=1, directory=tmp_path) as cluster:
        broker = cluster.broker("broker-a")
        host, _, port = broker.address.rpartition(":")
        broker.kill()
        with pytest.raises(OSError, match="in use"):
            hold(host, int(port))
        broker.restart()
        await cluster.ready()
        assert broker.address == f"{host}:{port}"
