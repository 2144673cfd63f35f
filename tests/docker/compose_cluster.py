"""The cluster of docker-compose.yml under its own project name, ports and subnet, so that it disturbs no other."""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dejamq_lab.cluster.ports import held_ports

HOUSE = Path(__file__).parents[2]
IMAGE = "dejamq:test"
SERVERS = ("namesrv-a", "namesrv-b", "broker-a", "broker-b")
SLAVES = ("broker-a-s1", "broker-b-s1")
MODES = {
    "demo": SERVERS,
    "masters": SERVERS,
    "async": (*SERVERS, *SLAVES),
    "sync": (*SERVERS[:2], "sync-broker-a", "sync-broker-b", *SLAVES),
}
"""The servers of each profile."""
SUBNETS = itertools.cycle(f"198.51.100.{first}/26" for first in (0, 64, 128, 192))
"""Quarters of a network set aside for documentation, which meets nobody's; a few clusters fit side by side."""
HEALTHY_S = 180
"""What servers may take on a busy machine: four start at once, and each check is a process too."""
BUILT_S = 900
"""What an image may take: a base system and the wheels are fetched first."""
PORT_TAKEN = re.compile("port is already allocated|address already in use")
PORTS = tuple(f"DEJAMQ_{name.upper().replace('-', '_')}_PORT" for name in (*SERVERS, *SLAVES))


def run(command: Sequence[str], environment: dict[str, str] | None = None, *, deadline_s: float = 120) -> str:
    """What a command prints. Raises AssertionError with all it said when it fails: that is what one wants to read."""
    done = subprocess.run(
        command, cwd=HOUSE, env=environment, capture_output=True, text=True, timeout=deadline_s, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, *, deadline_s: float = 60) -> None:
    """Raises AssertionError when the condition is not met in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.1)


def compose_command() -> list[str]:
    """`docker compose` where the plugin is, else docker-compose 1.29."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    return ["docker", "compose"] if plugin.returncode == 0 else ["docker-compose"]


def build_image() -> None:
    """Servers, clients and command line; without Spark, which the tests run on the host."""
    environment = os.environ | {"DEJAMQ_IMAGE": IMAGE, "EXTRAS": "cli"}
    run(["tools/build_image.sh"], environment, deadline_s=BUILT_S)


class ComposeCluster:
    """Call `up` first and `down` in the end, come what may; `running` does both."""

    def __init__(self, directory: Path, profile: str) -> None:
        """`directory` gets the journals and the ledger of the containers, which run as another user."""
        self.profile, self.servers = profile, MODES[profile]
        self.project = f"dejamq-test-{secrets.token_hex(3)}"
        self.journal_dir, self.demo_dir = directory / "journal", directory / "demo"
        self._choose_ports()
        for folder in (self.journal_dir, self.demo_dir):
            folder.mkdir()
            folder.chmod(0o777)
        self._environment = os.environ | {
            "DEJAMQ_IMAGE": IMAGE,
            "DEJAMQ_SUBNET": next(SUBNETS),
            "DEJAMQ_JOURNAL": str(self.journal_dir),
            "DEJAMQ_JOURNAL_LEVEL": "forensic",
            "DEJAMQ_DEMO": str(self.demo_dir),
            "DEJAMQ_HEALTH_INTERVAL": "2s",
            "DEJAMQ_SLAVE_SYNC_INTERVAL_MS": "1000",
            "DEJAMQ_DISK_CHECK_ENABLE": "false",
            "DEJAMQ_BROKER_FAST_FAILURE_ENABLE": "false",  # as in the lab: a busy machine refuses nothing
        }
        self._compose = [*compose_command(), "-p", self.project]

    def _choose_ports(self) -> None:
        """Free ones. Another process may take one before the containers have it."""
        with held_ports(len(PORTS)) as ports:
            self.ports = dict(zip(PORTS, ports, strict=True))
        self.namesrv = ";".join(f"127.0.0.1:{self.ports[name]}" for name in PORTS[:2])

    def compose(self, *arguments: str, settings: dict[str, str] | None = None) -> str:
        """One compose command on this project; `settings` are further variables of docker-compose.yml."""
        return self.unprofiled("--profile", self.profile, *arguments, settings=settings)

    def unprofiled(self, *arguments: str, settings: dict[str, str] | None = None) -> str:
        """As `compose`, for who chooses no profile."""
        ports = {name: str(port) for name, port in self.ports.items()}
        return run([*self._compose, *arguments], self._environment | ports | (settings or {}))

    def up(self) -> None:
        """All of a mode by its one command; of the demo the servers only."""
        begin = ("up", "-d", *(SERVERS if self.profile == "demo" else ()))
        try:
            self.compose(*begin)
        except AssertionError as failed:
            if not PORT_TAKEN.search(str(failed)):
                raise
            self._choose_ports()
            self.compose(*begin)
        self.wait_healthy(*self.servers)

    def change_to(self, profile: str) -> None:
        """The servers that are not of the new mode end first. Stores stay, and so does who is of both."""
        if leaving := self.containers().keys() - set(MODES[profile]):
            self.compose("rm", "--stop", "--force", *leaving)
        self.profile, self.servers = profile, MODES[profile]
        self.up()

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "10")

    def start(self, *services: str, settings: dict[str, str] | None = None) -> None:
        """Create and start services of the demo (their servers run already)."""
        self.compose("up", "-d", "--no-deps", *services, settings=settings)

    def stop(self, *services: str) -> None:
        """SIGTERM, and the time to drain."""
        self.compose("stop", "--timeout", "30", *services)

    def kill(self, service: str) -> None:
        """SIGKILL; the container stays, stopped."""
        self.compose("kill", "-s", "SIGKILL", service)
        wait_until(lambda: self.state(service)["Status"] == "exited", f"{service} is dead")

    def restart(self, service: str) -> None:
        self.compose("start", service)
        self.wait_healthy(service)

    def containers(self) -> dict[str, str]:
        """Service -> id of its container, running or not. The engine is asked: compose takes a second for it."""
        label = "com.docker.compose"
        chosen = (f"label={label}.project={self.project}", f"label={label}.oneoff=False")
        filters = [part for one in chosen for part in ("--filter", one)]
        shown = run(["docker", "ps", "-a", *filters, "--format", f'{{{{.Label "{label}.service"}}}} {{{{.ID}}}}'])
        return dict(line.split() for line in shown.splitlines())

    def container(self, service: str) -> str:
        """The id of the service's container, running or not."""
        return self.containers()[service]

    def state(self, service: str) -> dict[str, object]:
        state: dict[str, object] = json.loads(
            run(["docker", "inspect", "-f", "{{json .State}}", self.container(service)])
        )
        return state

    def is_healthy(self, service: str) -> bool:
        health = self.state(service).get("Health")
        return isinstance(health, dict) and health.get("Status") == "healthy"

    def wait_healthy(self, *services: str) -> None:
        healthy = f"{', '.join(services)} healthy"
        self.wait_until(lambda: all(map(self.is_healthy, services)), healthy, deadline_s=HEALTHY_S)

    def wait_until(self, condition: Callable[[], bool], what: str, *, deadline_s: float = 60) -> None:
        """As the function, with the last lines of all containers where it does not come to that."""
        try:
            wait_until(condition, what, deadline_s=deadline_s)
        except AssertionError as error:
            error.add_note(self.logs())
            raise

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "20")

    def dejamq(self, *arguments: str, at: str = "namesrv-a") -> str:
        """The command line in a server's container, where name servers are known by their service names."""
        return run(["docker", "exec", self.container(at), "dejamq", *arguments])

    def is_whole(self) -> bool:
        """Whether everybody serves, and every slave follows its master."""
        try:
            self.dejamq("cluster", "health", "--strict")
        except AssertionError:
            return False
        return True


@contextmanager
def running(directory: Path, profile: str = "demo") -> Iterator[ComposeCluster]:
    """A healthy cluster, taken down whatever happens."""
    cluster = ComposeCluster(directory, profile)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
