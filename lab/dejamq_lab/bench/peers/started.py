"""The peers by name, and one of them standing."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from dejamq_proto.codes import ConfigError

from dejamq_lab.bench.client.result import Load
from dejamq_lab.bench.client.target import Target
from dejamq_lab.bench.peers.kafka import Kafka
from dejamq_lab.bench.peers.nats import Nats
from dejamq_lab.bench.peers.peer import Peer
from dejamq_lab.bench.peers.rabbitmq import RabbitMQ
from dejamq_lab.bench.peers.redis import Redis
from dejamq_lab.bench.peers.rocketmq import RocketMQPeer
from dejamq_lab.machines.jars import Missing

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Redis, Nats, RabbitMQ, Kafka, RocketMQPeer)}
NAMES = tuple(PEERS)


def absence(name: str) -> str | None:
    """Why this peer cannot be measured here, with what to install; None when it can. Raises ConfigError."""
    return _peer(name).absence()


@contextlib.asynccontextmanager
async def started(name: str, load: Load) -> AsyncIterator[Target]:
    """The peer's servers, standing until the end. Raises ConfigError, Missing, ClusterFailed."""
    kind = _peer(name)
    if missing := kind.absence():
        raise Missing(missing)
    with tempfile.TemporaryDirectory(prefix="dejamq-bench-", ignore_cleanup_errors=True) as folder:
        peer = kind(Path(folder), load)
        try:
            yield peer.target(await peer.start())
        finally:
            await peer.stop()


def _peer(name: str) -> type[Peer]:
    if name not in PEERS:
        raise ConfigError(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return PEERS[name]
