"""Who of a cluster serves: every name server by itself, for they do not know each other, and the brokers of each."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dejamq.config import parse_addresses
from dejamq_lab import rpc_control
from dejamq_lab.rpc_control import BrokerInfo
from dejamq_proto.codes import DejamqError


@dataclass(frozen=True)
class Server:
    """One server and whether it says of itself that it serves."""

    role: str
    name: str
    address: str
    healthy: bool

    def row(self) -> dict[str, Any]:
        return asdict(self)


def usable(servers: Sequence[Server]) -> bool:
    """Clients need one name server, and every broker that it sends them to, with its master."""
    brokers = [server.healthy for server in servers if server.role == "broker"]
    return bool(brokers) and all(brokers) and any(one.healthy for one in servers if one.role == "namesrv")


async def health_of(namesrv: str) -> list[Server]:
    """All name servers in the order given, then all brokers by name and address. A master that is not there has a row
    without an address. Asked at once, so that one that does not answer takes no longer than three. Raises ConfigError.
    """
    addresses = parse_addresses(namesrv)
    told = await asyncio.gather(*map(_asked, addresses))
    namesrvs = [
        Server("namesrv", "", address, brokers is not None) for address, brokers in zip(addresses, told, strict=True)
    ]
    brokers = [broker for some in told for broker in some or ()]
    known = sorted({(broker.broker_name, address) for broker in brokers for address in broker.addresses.values()})
    healthy = await asyncio.gather(*(rpc_control.healthy(address) for _, address in known))
    servers = [Server("broker", *place, serves) for place, serves in zip(known, healthy, strict=True)]
    led = {broker.broker_name for broker in brokers if broker.master is not None}
    headless = [Server("broker", name, "", False) for name in {broker.broker_name for broker in brokers} - led]
    return namesrvs + sorted(servers + headless, key=lambda server: (server.name, server.address))


async def _asked(address: str) -> list[BrokerInfo] | None:
    """The brokers that this name server knows; None when it does not serve, or does not say."""
    serves, brokers = await asyncio.gather(
        rpc_control.healthy(address), rpc_control.brokers(address), return_exceptions=True
    )
    if isinstance(brokers, BaseException):
        if not isinstance(brokers, DejamqError):
            raise brokers
        return None
    return brokers if serves is True else None
