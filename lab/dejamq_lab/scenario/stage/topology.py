"""A scenario's containers and their networks: each server has a network of its own, with everybody who dials it.

So a link between two is one membership, and is cut by taking the dialling one out of the other's network.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from dejamq_proto import failpoints
from dejamq_proto.codes import ConfigError

from dejamq_lab.cluster.plan import replica_of
from dejamq_lab.scenario.script.text import Scenario, server_names

PORT = 10911


@dataclass(frozen=True)
class Topology:
    """Members of each network, and their addresses. ``networks``: by the server that they belong to."""

    actors: Sequence[str]
    servers: Sequence[str]
    networks: dict[str, IPv4Network]

    def members(self, server: str) -> dict[str, str]:
        """Address of everybody in the network of this server; its own is the first. Raises ConfigError."""
        addresses = [str(address) for address in self.networks[server].hosts()][1:]  # the first is the gateway's
        inside = [server, *self._diallers(server)]
        if len(inside) > len(addresses):
            raise ConfigError(f"containers: {len(inside)} dial {server}, and there is room for {len(addresses)}")
        return dict(zip(inside, addresses, strict=False))

    def address(self, server: str) -> str:
        """Where everybody dials it, this machine too."""
        return f"{self.members(server)[server]}:{PORT}"

    def _diallers(self, server: str) -> list[str]:
        """Actors dial every server, brokers every name server, and a slave its master."""
        if server.startswith("namesrv-"):
            return [*(other for other in self.servers if not other.startswith("namesrv-")), *self.actors]
        slaves = [other for other in self.servers if other != server and replica_of(other)[0] == server]
        masters = [replica_of(server)[0]] if replica_of(server)[1] else []  # it may have been promoted
        return [*slaves, *masters, *self.actors]

    def compose(self, image: str, user: str, directory: Path, project: str) -> str:
        """The compose file, in JSON, which is YAML. Every container sees ``directory`` under its own path."""
        every = {name: self.members(name) for name in self.servers}
        services = {
            name: _service(image, user, directory, f"{project}-{name}", name)
            | {"networks": {net: {"ipv4_address": inside[name]} for net, inside in every.items() if name in inside}}
            for name in (*self.servers, *self.actors)
        }
        networks = {
            name: {"internal": True, "ipam": {"config": [{"subnet": str(subnet)}]}}
            for name, subnet in self.networks.items()
        }
        return json.dumps({"services": services, "networks": networks}, indent=1)


def topology(scenario: Scenario, networks: Sequence[IPv4Network]) -> Topology:
    """``networks``: one for each server."""
    servers = server_names(scenario.cluster)
    return Topology(list(scenario.actors), servers, dict(zip(servers, networks, strict=True)))


def _service(image: str, user: str, directory: Path, container: str, name: str) -> dict[str, Any]:
    """Its command is in a file, which is written before each start."""
    return {
        "image": image, "user": user, "container_name": container, "stdin_open": True,
        "entrypoint": ["python", "-m", "dejamq_lab.scenario.stage.contained", str(directory / f"{name}.command.json")],
        "environment": {failpoints.VARIABLE: f"@{failpoint_file(directory, name)}", "HOME": "/tmp"},
        "healthcheck": {"disable": True}, "volumes": [f"{directory}:{directory}"],
    }  # fmt: skip


def failpoint_file(directory: Path, name: str) -> Path:
    """The file that arms its failpoints."""
    return directory / f"{name}.failpoints"
