"""The container engine, spoken to with its own command: what the lab needs of it, and what it says when it fails."""

import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from dejamq_lab.errors import ClusterFailed, NotSupported

NET = ipaddress.ip_network("198.51.100.0/24")
"""Set aside for documentation, so that it meets nobody's network."""
PIECE = 28
"""Bits of the prefix of one network in it: 13 containers and the gateway."""
DEADLINE_S = 120


def image() -> str:
    """The image that containers are made of. Raises NotSupported when it or the engine is not there."""
    if shutil.which("docker") is None:
        raise NotSupported("containers need docker, which is not on the PATH; --cluster process needs nothing")
    name = os.environ.get("DEJAMQ_IMAGE", "dejamq:local")
    done = subprocess.run(["docker", "image", "inspect", name], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotSupported(f"no image {name}: {said} (`make image` makes it; DEJAMQ_IMAGE names another one)")
    return name


def docker(*arguments: str) -> str:
    """The output of ``docker``. Raises ClusterFailed, which names the fault."""
    return _run(["docker", *arguments])


class Project:
    """A compose project: its file is written first, and everything of it goes with ``down``."""

    def __init__(self, name: str, file: Path) -> None:
        self.name, self.file = name, file

    def container(self, service: str) -> str:
        """The name of its container."""
        return f"{self.name}-{service}"

    def network(self, name: str) -> str:
        return f"{self.name}_{name}"

    def create(self) -> None:
        """Networks and containers, none of them started. Raises ClusterFailed."""
        self._compose("up", "--no-start")
        for service, wanted in json.loads(self.file.read_text(encoding="utf-8"))["services"].items():
            shown = docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", self.container(service))
            for network in wanted["networks"].keys() - {
                name.removeprefix(self.network("")) for name in json.loads(shown)
            }:
                # compose 1.29 would come to these when it starts the container
                self.connect(service, network, wanted["networks"][network]["ipv4_address"])

    def connect(self, service: str, network: str, address: str) -> None:
        docker("network", "connect", "--ip", address, self.network(network), self.container(service))

    def disconnect(self, service: str, network: str) -> None:
        """From one moment to the next: nobody is told."""
        docker("network", "disconnect", self.network(network), self.container(service))

    def down(self) -> None:
        self._compose("down", "--volumes", "--timeout", "5")

    def _compose(self, *arguments: str) -> None:
        plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
        command = ["docker", "compose"] if plugin else ["docker-compose"]
        _run([*command, "-p", self.name, "-f", str(self.file), *arguments])


def free_networks(count: int) -> list[ipaddress.IPv4Network]:
    """``count`` parts of ``NET`` that no network of the engine has. Raises ClusterFailed."""
    taken = list(_taken())
    pieces = (piece for piece in NET.subnets(new_prefix=PIECE) if not any(map(piece.overlaps, taken)))
    found = [piece for piece in islice(pieces, count) if isinstance(piece, ipaddress.IPv4Network)]
    if len(found) < count:
        raise ClusterFailed(f"{NET} has no room for {count} networks: `docker network ls` shows what is there")
    return found


def _taken() -> Iterator[ipaddress.IPv4Network]:
    names = docker("network", "ls", "-q").split()
    for network in json.loads(docker("network", "inspect", *names)) if names else ():
        for config in (network.get("IPAM") or {}).get("Config") or ():
            subnet = ipaddress.ip_network(config["Subnet"])
            if isinstance(subnet, ipaddress.IPv4Network):
                yield subnet


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterFailed(f"{' '.join(command[:3])}: {error}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["it said nothing"]
        raise ClusterFailed(f"{' '.join(command[:3])} ended with {done.returncode}: {said[-1]}")
    return done.stdout
