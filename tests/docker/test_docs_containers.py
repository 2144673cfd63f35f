"""docs/containers.md: its commands are run as they stand, with another name, port and tag."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest
from compose_cluster import HEALTHY_S, HOUSE, IMAGE, run, wait_until
from dejamq_lab.cluster.ports import held_ports

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]
PAGE = (HOUSE / "docs" / "containers.md").read_text(encoding="utf-8")
BUILT = ("make image",)
"""Lines that the fixture has done."""


def block(word: str, language: str = "sh") -> str:
    """The only block of the page with this word in it."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text]
    assert len(found) == 1, word
    return str(found[0])


@pytest.fixture
def port(image: None) -> int:
    with held_ports(1) as (port,):
        return port


@pytest.fixture
def name() -> Iterator[str]:
    """Of a container, which is gone afterwards."""
    name = f"dejamq-page-{uuid4().hex[:8]}"
    yield name
    with suppress(AssertionError):
        run(["docker", "rm", "-f", "-v", name])


def here(text: str, port: int, name: str) -> str:
    """The text for this test's image, port and container."""
    text = "\n".join(line for line in text.splitlines() if not line.startswith(BUILT))
    text = re.sub(r"dejamq:local(?!-)", IMAGE, text).replace("9876:9876", f"127.0.0.1:{port}:9876")
    text = text.replace("localhost:9876", f"localhost:{port}").replace(
        "NAMESRV=127.0.0.1:9876", f"NAMESRV=127.0.0.1:{port}"
    )
    text = text.replace("--name mq", f"--name {name}").replace("docker logs mq", f"docker logs {name}")
    return text if f"--name {name}" in text else text.replace("docker run ", f"docker run --name {name} ")


def script(text: str) -> str:
    """What the commands said, from a shell that ends at the first failure."""
    places = {"PATH": f"{HOUSE / '.venv' / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text], env=os.environ | places, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_first_commands_start_a_broker_and_send_to_it(port: int, name: str) -> None:
    said = script(here(block("make image "), port, name))
    assert "SEND_OK" in said
    assert "ready dev " in said


def test_a_published_address_is_told_to_clients(port: int, name: str) -> None:
    script(here(block("DEJAMQ_ADVERTISE"), port, name))
    send = f"dejamq send orders order-17 --namesrv localhost:{port}"
    script(f"until {send}; do sleep 1; done")
    routes = script(f"dejamq topic route orders --namesrv localhost:{port} -o json")
    assert f"localhost:{port}" in routes


def test_a_service_of_a_ci_job_is_healthy_with_what_its_file_says(port: int, name: str) -> None:
    """A runner gives a service its image and ports, and waits for its health."""
    text = block("services:", "yaml")
    image, ports = re.findall(r"image: (\S+)", text)[0], re.findall(r'ports: \["(\S+)"\]', text)[0]
    script(here(f"docker run -d --name mq -p {ports} {image}", port, name))

    def healthy() -> bool:
        return bool(json.loads(run(["docker", "inspect", "-f", "{{json .State.Health.Status}}", name])) == "healthy")

    wait_until(healthy, "the service is healthy", deadline_s=HEALTHY_S)


@pytest.mark.parametrize("command", re.findall(r"`(docker run [^`…]*)`", PAGE))
def test_a_command_that_the_text_names_works(command: str, port: int, name: str) -> None:
    assert "--help" in shlex.split(command)
    assert "usage: dejamq serve broker" in script(here(command, port, name)).lower()


def test_a_root_that_cannot_be_written_to_is_enough(port: int, name: str) -> None:
    (options,) = re.findall(r"`docker run (--read-only [^`]*) …`", PAGE)
    script(here(f"docker run -d --name mq {options} dejamq:local", port, name))
    wait_until(lambda: "ready dev" in run(["docker", "logs", name]), "the server is ready", deadline_s=HEALTHY_S)
