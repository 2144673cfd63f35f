"""Redis with its Streams, written to an append-only file that is synced every second, or always."""

from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.cluster.plan import LOOPBACK

FSYNC = {"async": "everysec", "sync": "always"}


class Redis(Peer):
    name = "redis"
    program = ("redis-server", "redis-server")
    library = "redis"
    sync_flush = True
    durability = "stream in memory and in an append-only file, appendfsync everysec; consumer group, XACK"

    async def start(self) -> str:
        (port,) = self.held_ports(1)
        settings = {
            "bind": LOOPBACK, "port": port, "dir": self.folder, "save": "", "appendonly": "yes",
            "appendfsync": FSYNC[self.load.flush_mode],
        }  # fmt: skip
        command = ["redis-server"]
        for name, value in settings.items():
            command += [f"--{name}", str(value)]
        return await self.listening(port, self.spawn(command))
