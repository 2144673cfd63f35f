"""What the benchmarks of a whole service share: a cluster of processes, clients in processes of their own, /proc."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from typing import Any

from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess

JOURNAL = "BENCHMARK_JOURNAL"
Process = asyncio.subprocess.Process


@contextlib.asynccontextmanager
async def cluster(topics: Mapping[str, int], settings: Mapping[str, Any] | None = None) -> AsyncIterator[Cluster]:
    """One name server and one broker as processes, journal at ``audit``; their folder goes with them."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        async with Cluster(
            topics=topics, processes=True, directory=directory, journal_level="audit", settings=settings
        ) as servers:
            os.environ[JOURNAL] = str(servers.journal_dir)
            yield servers


@contextlib.asynccontextmanager
async def clients(servers: Cluster, program: str, parts: Mapping[str, list[str]]) -> AsyncIterator[dict[str, Process]]:
    """Parts of a measurement in processes of their own: ``program PART ARGUMENTS… --namesrv …``, named by part.

    At the end all of them have ended by themselves. Raises SystemExit when one failed.
    """
    processes = {
        part: await asyncio.create_subprocess_exec(
            sys.executable, program, part, *arguments, f"--namesrv={servers.namesrv}", stdout=subprocess.PIPE
        )
        for part, arguments in parts.items()
    }
    try:
        yield processes
        if any([await process.wait() for process in processes.values()]):
            raise SystemExit("a client failed: see above")
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.kill()


def journal() -> dict[str, Any]:
    """Settings of a client in such a process."""
    return {"journal_dir": os.environ[JOURNAL], "journal_level": "audit"}


def broker_of(servers: Cluster) -> ServerProcess:
    found = servers.broker("broker-a")
    assert isinstance(found, ServerProcess)
    return found


def namesrv_of(servers: Cluster) -> ServerProcess:
    found = servers.namesrv_at(0)
    assert isinstance(found, ServerProcess)
    return found
