"""A cluster in which everybody dials everybody else through a relay of their own."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dejamq_lab.cluster import Cluster
from dejamq_lab.scenario.links import Links
from dejamq_lab.scenario.text import Actor

if TYPE_CHECKING:
    from dejamq_broker.config import BrokerConfig


class LinkedCluster(Cluster):
    """A cluster whose links go through relays."""

    def __init__(self, links: Links, actors: Mapping[str, Actor], **shape: Any) -> None:
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
