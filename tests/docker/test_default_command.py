"""The image as it is: `docker run -p 9876:9876 IMAGE` is a broker for the host, with nothing else said."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress

import pytest
from compose_cluster import HEALTHY_S, HOUSE, IMAGE, run, wait_until
from dejamq import ConsumeFrom, LitePullConsumer, Message, Producer
from dejamq_lab.cluster.ports import held_ports

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]
MOST_BYTES = 200_000_000


def inspected(what: str, template: str) -> object:
    return json.loads(run(["docker", "inspect", "-f", f"{{{{json {template}}}}}", what]))


def wait_healthy(container: str) -> None:
    def healthy() -> bool:
        return inspected(container, ".State.Health.Status") == "healthy"

    wait_until(healthy, "the container is healthy", deadline_s=HEALTHY_S)


@pytest.fixture(scope="module")
def address(image: None) -> str:
    """Of this machine, where the container's port is published."""
    with held_ports(1) as (port,):
        return f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def container(address: str) -> Iterator[str]:
    """Of the image's own command, with a root that cannot be written to; healthy."""
    begun = ["docker", "run", "-d", "--read-only", "--tmpfs", "/tmp", "-p", f"{address}:9876", IMAGE]
    name = run(begun).strip()
    try:
        try:
            wait_healthy(name)
        except AssertionError as error:
            error.add_note(run(["docker", "logs", name]))
            raise
        yield name
    finally:
        with suppress(AssertionError):
            run(["docker", "rm", "-f", "-v", name])


async def test_a_client_on_the_host_sends_and_receives(container: str, address: str) -> None:
    async with Producer("shop", namesrv=address) as producer:
        sent = await producer.send(Message("orders", b"order-17"))
    consumer = LitePullConsumer("billing", namesrv=address, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("orders")
    async with consumer:
        assert [message.message_id for message in await consumer.poll(timeout_ms=30_000)] == [sent.message_id]


def test_the_server_is_not_root_and_has_no_package_manager(container: str) -> None:
    run(["docker", "exec", container, "sh", "-c", 'test "$(id -u)" = 10001 && ! command -v pip && ! command -v apt'])


def test_a_stopped_server_ends_with_status_0_and_its_volume_keeps_what_was_sent(container: str) -> None:
    run(["docker", "exec", container, "dejamq", "send", "kept", "order-18"])
    run(["docker", "stop", "--time", "30", container])
    assert inspected(container, ".State.ExitCode") == 0
    run(["docker", "start", container])
    wait_healthy(container)
    consume = ("dejamq", "consume", "kept", "--from", "begin", "--count", "1", "-o", "json")
    shown = run(["docker", "exec", container, *consume])
    assert json.loads(shown)["body"] == "order-18"


def test_the_image_without_spark_is_small_and_tells_the_version_of_the_project(image: None) -> None:
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    size = inspected(IMAGE, ".Size")
    assert isinstance(size, int)
    assert size < MOST_BYTES
    labels = inspected(IMAGE, ".Config.Labels")
    assert isinstance(labels, dict)
    assert labels["org.opencontainers.image.version"] == project["version"]
