"""RocketMQ itself, with its own Java client: a name server and one broker; its jars come by Maven."""

import asyncio
import contextlib
from pathlib import Path

from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.client.target import FLUSH_TYPES, Target
from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.machines.jars import jar_cache, java_absence
from dejamq_lab.machines.rocketmq import VERSION, Failed, RocketMQ, fetched_jars

SOURCE = Path(__file__).with_name("RocketMQClient.java")
HEAP = "1g"


class RocketMQPeer(Peer):
    name = "rocketmq"
    program = ("java", "of a JDK of version 11 or newer")
    modes = frozenset({"submit", "single", "batch"})
    sync_flush = True
    durability = "asynchronous flush; Java client, offsets committed every 5 s"

    def __init__(self, folder: Path, load: Load) -> None:
        super().__init__(folder, load)
        self._standing = contextlib.ExitStack()

    @classmethod
    def absence(cls) -> str | None:
        missing = java_absence(jar_cache(cls.name, VERSION))
        return f"{cls.name}: {missing}" if missing else None

    async def start(self) -> str:
        jars = await asyncio.to_thread(fetched_jars, jar_cache(self.name, VERSION))
        settings = {
            "flushDiskType": FLUSH_TYPES[self.load.flush_mode],
            "brokerFastFailureEnable": "false",  # as of the lab's own brokers: a busy moment is no failure
        }
        servers = RocketMQ(jars, self.folder / "store", self.folder / "work", settings, HEAP)
        try:
            self._servers = self._standing.enter_context(servers)
        except Failed as failed:
            raise ClusterFailed(str(failed).splitlines()[0]) from None
        return self._servers.namesrv

    def client(self) -> list[str]:
        return [*self._servers.java(HEAP), str(SOURCE)]

    def target(self, address: str) -> Target:
        about = {"peer": self.name, "durability": self.durability}
        return Target(address, self.client(), about, [self._servers.broker_pid], directory=str(self.folder))

    async def stop(self) -> None:
        self._standing.close()
