"""Servers of a cluster that serve: each name server alone, as they do not know each other, and its brokers."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dejamq.values.config import parse_addresses
from dejamq_lab.cluster import rpc_control
from dejamq_lab.cluster.rpc_control import BrokerAddresses
from dejamq_proto.codes import DejamqError
from dejamq_proto.names import MASTER_ID


@dataclass(frozen=True)
class ServerHealth:
    """One server and whether it says of itself that it serves; of a slave, whether it follows its master too."""

    role: str
    name: str
    id: int | None
    address: str
    healthy: bool
    following: bool | None = None

    def row(self) -> dict[str, Any]:
        return asdict(self)


def usable(servers: Sequence[ServerHealth]) -> bool:
    """Clients need one name server, and the master of every broker that it sends them to."""
    led = [server.healthy for server in masters(servers)]
    return bool(led) and all(led) and any(one.healthy for one in servers if one.role == "namesrv")


def masters(servers: Sequence[ServerHealth]) -> list[ServerHealth]:
    """Those that a name server knows, and those that are missing beside their slaves."""
    return [server for server in servers if server.role == "broker" and server.id == MASTER_ID]


async def health_of(namesrv: str) -> list[ServerHealth]:
    """All name servers in the order given, then all brokers by name and id. A master that is not there has a row
    without an address. Asked at once, so that one that does not answer takes no longer than three. Raises ConfigError.
    """
    addresses = parse_addresses(namesrv)
    told = await asyncio.gather(*map(_asked, addresses))
    namesrvs = [
        ServerHealth("namesrv", "", None, address, brokers is not None)
        for address, brokers in zip(addresses, told, strict=True)
    ]
    brokers = [broker for some in told for broker in some or ()]
    known = {(broker.broker_name, *replica) for broker in brokers for replica in broker.addresses.items()}
    servers = await asyncio.gather(*(_broker(*replica) for replica in known))
    led = {broker.broker_name for broker in brokers if broker.master is not None}
    headless = [
        ServerHealth("broker", name, MASTER_ID, "", False) for name in {broker.broker_name for broker in brokers} - led
    ]
    return namesrvs + sorted([*servers, *headless], key=lambda server: (server.name, server.id, server.address))


async def _broker(name: str, broker_id: int, address: str) -> ServerHealth:
    if broker_id == MASTER_ID:
        return ServerHealth("broker", name, broker_id, address, await rpc_control.healthy(address))
    told = await asyncio.gather(rpc_control.healthy(address), rpc_control.follows(address))
    return ServerHealth("broker", name, broker_id, address, *told)


async def _asked(address: str) -> list[BrokerAddresses] | None:
    """The brokers that this name server knows; None when it does not serve, or does not say."""
    serves, brokers = await asyncio.gather(
        rpc_control.healthy(address), rpc_control.brokers(address), return_exceptions=True
    )
    if isinstance(brokers, BaseException):
        if not isinstance(brokers, DejamqError):
            raise brokers
        return None
    return brokers if serves is True else None
