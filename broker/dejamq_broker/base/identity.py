"""The broker's identity for others: its names, its published address, and the host that its records carry."""

import asyncio
import ipaddress
import socket
from functools import lru_cache

import msgspec
from dejamq_proto.names import DIRECT, MASTER_ID

from dejamq_broker.base.config import BrokerConfig, is_loopback

LOOPBACK = "127.0.0.1"
IntHost = tuple[int, int]  # IPv4 as a number, port


class Site(msgspec.Struct, kw_only=True):
    """Complete once the server is bound, since the port may be chosen then.

    ``address`` is the one that clients dial; ``advertised`` has further addresses by listener name, gRPC's own port
    among them. ``replica`` and ``epoch`` are there with ``failover_enable``. ``store_host`` is IPv4 and port,
    since a record's eight bytes hold nothing else without the IPv6 flag.
    """

    cluster: str
    broker_name: str
    broker_id: int
    boot_id: str
    address: str = ""
    advertised: dict[str, str] = {}
    store_host: tuple[str, int] = (LOOPBACK, 0)
    replica: str = ""
    epoch: int = 0

    @property
    def master(self) -> bool:
        """Whether it takes messages: a slave only copies its master's."""
        return self.broker_id == MASTER_ID

    @property
    def store_host_number(self) -> IntHost:
        """As records carry it."""
        return _number(self.store_host[0]), self.store_host[1]

    @property
    def store_address(self) -> str:
        """As answers to sends carry it: part of the offset message id."""
        return f"{self.store_host[0]}:{self.store_host[1]}"


async def settle(site: Site, config: BrokerConfig, bound: str, direct: str = "") -> None:
    """Fill in the addresses from what is advertised and where the server listens.

    ``direct`` is gRPC's own address. It is advertised where clients surely reach it: on the loopback, and with no
    other address that they are told to dial. Elsewhere an operator advertises it, by the name ``grpc:``.

    A name that cannot be resolved here makes the store host 127.0.0.1: offset message ids then tell less, and
    nothing else depends on them.
    """
    port = bound.rpartition(":")[2]
    listeners = {name: _with_port(address, port) for name, address in config.advertised().items()}
    told = listeners.pop("", "")
    site.address = told or reachable(bound)
    if direct and not told and is_loopback(bound.rpartition(":")[0]):
        listeners.setdefault(DIRECT, direct)
    site.advertised = listeners
    host, _, advertised_port = site.address.rpartition(":")
    site.store_host = (await _ipv4(host.strip("[]")), int(advertised_port))


def peer_host(peer: str) -> IntHost:
    """gRPC's name of the other end (``ipv4:127.0.0.1:4711``) as records carry it; other families become 0.0.0.0."""
    kind, _, rest = peer.partition(":")
    host, _, port = rest.rpartition(":")
    try:
        return (int(ipaddress.IPv4Address(host)), int(port)) if kind == "ipv4" else (0, 0)
    except ValueError:
        return 0, 0


@lru_cache(maxsize=16)
def _number(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


def _with_port(address: str, port: str) -> str:
    host, _, own = address.rpartition(":")
    return f"{host}:{port}" if own == "0" else address


def reachable(bound: str) -> str:
    """The bound address, or for 'every interface' one that another machine can dial."""
    host, _, port = bound.rpartition(":")
    return f"{_primary_ipv4()}:{port}" if host.strip("[]") in ("0.0.0.0", "::", "") else bound


def _primary_ipv4() -> str:
    """The address this machine would use towards the outside; nothing is sent to learn it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            return LOOPBACK
    return address


async def _ipv4(host: str) -> str:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
    except OSError:
        return LOOPBACK
    return str(found[0][4][0])
