"""Servers under measurement, and the start of a client process for them."""

import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from dejamq import Admin
from dejamq_broker.store import StoreConfig

from dejamq_lab.bench.client.process import python_client
from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.client.worker import OWN
from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.cluster.plan import LOG_FILE_BYTES
from dejamq_lab.cluster.process import ServerProcess
from dejamq_lab.cluster.usage import core_seconds

FLUSH_TYPES = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


class Target(msgspec.Struct, frozen=True):
    """Servers that run. ``about``: the facts about them that a repeated measurement needs.

    ``pids`` name the servers that messages go through; it is empty where the servers are somebody else's.
    """

    address: str
    client: list[str]
    about: dict[str, Any] = {}
    pids: list[int] = []
    journal_dir: str | None = None
    directory: str | None = None
    """Where the servers write, for a measurement of the disk itself."""
    drops: bool = False
    """Whether a client process can be told to remove a topic with all its messages."""

    def core_s(self) -> float:
        """Seconds in which the servers had a core so far."""
        return sum(map(core_seconds, self.pids))


@contextlib.asynccontextmanager
async def own_cluster(load: Load, topics: Sequence[str], directory: str | None = None) -> AsyncIterator[Target]:
    """A name server and a broker as processes, with the topics; without ``directory`` in a folder that goes again.

    Log files have the default size, unless all of the load fits into a test's file. With small files a bulk send
    would wait several times a second for a new file.
    """
    settings: dict[str, Any] = {"flush_disk_type": FLUSH_TYPES[load.flush_mode]}
    if load.messages * load.body_bytes > LOG_FILE_BYTES:
        settings["mapped_file_size_commit_log"] = StoreConfig().mapped_file_size_commit_log
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="dejamq-bench-"))
        async with Cluster(
            processes=True, topics=dict.fromkeys(topics, load.queues), journal_level=load.journal_level,
            settings=settings, directory=directory,
        ) as cluster:  # fmt: skip
            broker = cluster.broker("broker-a")
            assert isinstance(broker, ServerProcess)
            yield Target(
                cluster.namesrv, python_client(OWN), {"journal_level": load.journal_level}, [broker.pid],
                str(cluster.journal_dir), directory,
            )  # fmt: skip


async def given_cluster(namesrv: str, load: Load, topics: Sequence[str]) -> Target:
    """Somebody's cluster, in which the topics are made. Raises what Admin raises."""
    await make_topics(namesrv, load, topics)
    return Target(namesrv, python_client(OWN), {"journal_level": load.journal_level})


async def make_topics(namesrv: str, load: Load, topics: Sequence[str]) -> None:
    """In a running cluster of dejamq. Raises what Admin raises."""
    async with Admin(namesrv=namesrv) as admin:
        for topic in topics:
            await admin.create_topic(topic, queues=load.queues)
