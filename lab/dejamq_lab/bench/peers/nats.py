"""NATS JetStream, one stream in files."""

from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.cluster.plan import LOOPBACK


class Nats(Peer):
    name = "nats"
    program = ("nats-server", "nats-server")
    library = "nats"
    modes = frozenset({"submit", "await", "single"})
    durability = "JetStream stream in files, synced by the server's own clock; durable consumer that acknowledges"

    async def start(self) -> str:
        (port,) = self.held_ports(1)
        log = self.spawn(["nats-server", "-js", "-sd", str(self.folder), "-a", LOOPBACK, "-p", str(port)])
        return await self.listening(port, log)
