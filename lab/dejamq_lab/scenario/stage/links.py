"""The links of a scenario's cluster: one relay for each pair of processes that talk, so that each can be cut alone.

Each actor dials its name servers at an address of 127.0.0.0/8 of its own. Brokers advertise the relays that listen at
that address. So every actor has relays of its own to every server.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dejamq_proto.codes import ConfigError

from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.cluster.relay import DOWN, UP, Relay
from dejamq_lab.scenario.script.text import Actor

if TYPE_CHECKING:
    from dejamq_broker.base.config import BrokerConfig


FIRST_HOST = 10


class Relays:
    """The relays by who dials and who listens."""

    def __init__(self, host: str) -> None:
        """``host``: where the servers listen, 127.X.Y.Z; actors are at other addresses of 127.X.Y.0/24."""
        self._net = host.rpartition(".")[0]
        self._relays: dict[tuple[str, str], Relay] = {}
        self._hosts: dict[str, str] = {}
        self._gone: dict[str, list[Relay]] = {}

    def host(self, name: str) -> str:
        """The address that this one dials others at."""
        return self._hosts.setdefault(name, f"{self._net}.{FIRST_HOST + len(self._hosts)}")

    async def between(self, dialler: str, listener: str, target: Callable[[], str]) -> str:
        """The address at which ``dialler`` reaches ``listener``, through a relay of theirs."""
        relay = self._relays.get((dialler, listener))
        if relay is None:
            relay = Relay(target)
            await relay.start(self.host(dialler))
            self._relays[dialler, listener] = relay
        return relay.address

    def cut(self, one: str, other: str, mode: str) -> None:
        """``mode`` as the step's. Raises ConfigError for two that have no link, or a mode that there is not."""
        relay, up = self._relay(one, other)
        if mode == "reset":
            relay.cut()
        elif mode == "silent":
            relay.lose(UP, DOWN)
        elif mode in ("to", "from"):
            relay.lose(UP if (mode == "to") == up else DOWN)
        else:
            raise ConfigError(f"a link is cut by reset, silent, to or from, not {mode!r}")

    def delay(self, one: str, other: str, ms: float) -> None:
        self._relay(one, other)[0].delay(ms)

    def heal(self, one: str, other: str) -> None:
        self._relay(one, other)[0].heal()

    def isolate(self, name: str, mode: str) -> None:
        """Cut all links of this one. Raises as ``cut``."""
        for dialler, listener in self._of(name):
            self.cut(listener if dialler == name else dialler, name, mode)

    def rejoin_all(self, name: str) -> None:
        """Heal all links of this one. Raises as ``cut``."""
        for dialler, listener in self._of(name):
            self.heal(dialler, listener)

    def _of(self, name: str) -> list[tuple[str, str]]:
        found = [ends for ends in self._relays if name in ends]
        if not found:
            raise ConfigError(f"{name} has no links: set cluster.links")
        return found

    def leave(self, name: str) -> None:
        """All of this one's connections break, and it can be reached by nobody, and reach nobody, until ``rejoin``."""
        gone = [relay for ends, relay in self._relays.items() if name in ends and not relay.refusing]
        self._gone.setdefault(name, []).extend(gone)
        for relay in gone:
            relay.cut()

    def rejoin(self, name: str) -> None:
        """Bring up the links that ``leave`` cut; links that a step cut stay cut."""
        for relay in self._gone.pop(name, ()):
            relay.allow()

    async def close(self) -> None:
        for relay in self._relays.values():
            await relay.close()

    def _relay(self, one: str, other: str) -> tuple[Relay, bool]:
        """The relay of the two, and whether the first of them dials."""
        if (one, other) in self._relays:
            return self._relays[one, other], True
        if (other, one) in self._relays:
            return self._relays[other, one], False
        known = ", ".join(f"{dialler} - {listener}" for dialler, listener in self._relays) or "none: set cluster.links"
        raise ConfigError(f"there is no link between {one} and {other}; there are: {known}")


# A cluster in which everybody dials everybody else through a relay of their own.


class LinkedCluster(Cluster):
    """A cluster whose links go through relays."""

    def __init__(self, links: Relays, actors: Mapping[str, Actor], **shape: Any) -> None:
        super().__init__(**shape)
        self.links, self._actors = links, actors

    async def _broker_config(self, name: str) -> "BrokerConfig":
        def address() -> str:
            return self.broker(name).address

        told = [await self.links.between(name, namesrv.name, partial(_address, namesrv)) for namesrv in self._namesrvs]
        advertised = [
            f"{self.links.host(actor)}={await self.links.between(actor, name, address)}" for actor in self._actors
        ]
        config = await super()._broker_config(name)
        return dataclasses.replace(config, namesrv=";".join(told), advertise=";".join(advertised))

    async def dialled(self, actor: str, namesrv: str) -> str:
        """Where this actor dials a name server."""
        return await self.links.between(actor, namesrv, partial(_address, self.server(namesrv)))


def _address(server: Any) -> str:
    address: str = server.address
    return address
