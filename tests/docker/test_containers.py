"""The cluster in containers: reachable from everywhere, and nothing acknowledged is lost when containers are killed."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from compose_cluster import HOUSE, IMAGE, SERVERS, ComposeCluster, run, running, wait_until
from dejamq import Message, Producer, PushConsumer, ReceivedMessage
from dejamq_lab.demo.story import sharing
from dejamq_proto.journal import lines
from dejamq_proto.journal.events import SendResultEvent, SendTry

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster(image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    with running(tmp_path_factory.mktemp("compose")) as cluster:
        yield cluster


@pytest.fixture
def another_cluster(cluster: ComposeCluster, tmp_path: Path) -> Iterator[ComposeCluster]:
    """Beside the first, which keeps running: nothing but name, subnet and ports is needed for a second one."""
    with running(tmp_path) as another:
        yield another
    assert all(map(cluster.is_healthy, SERVERS))


def in_the_image(program: str, code: str) -> None:
    run(["docker", "run", "--rm", "--entrypoint", program, IMAGE, "-c", code])


def test_the_image_has_the_compiled_parts(image: None) -> None:
    in_the_image("python", "from dejamq.native import COMPILED; assert COMPILED")
    in_the_image("python", "from dejamq_proto.native import COMPILED; assert COMPILED")


def test_the_image_has_no_compiler(image: None) -> None:
    in_the_image("sh", "! command -v gcc && ! command -v cc")


def test_every_server_is_healthy_and_none_of_them_is_root(cluster: ComposeCluster) -> None:
    for service in SERVERS:
        assert cluster.is_healthy(service)
        assert run(["docker", "exec", cluster.container(service), "id", "-u"]).strip() == "10001"


async def test_a_client_on_the_host_sends_and_receives_through_published_ports(cluster: ComposeCluster) -> None:
    cluster.dejamq("topic", "create", "from-host")
    received = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"from the host":
            received.set()

    consumer = PushConsumer("host-readers", namesrv=cluster.namesrv)
    consumer.subscribe("from-host", handle)
    async with consumer, Producer("host-writers", namesrv=cluster.namesrv) as producer:
        await consumer.wait_assigned(30_000)
        await producer.send(Message("from-host", b"from the host"))
        async with asyncio.timeout(30):
            await received.wait()


async def test_a_client_in_a_container_reads_what_the_host_sent_and_sends_itself(cluster: ComposeCluster) -> None:
    cluster.dejamq("topic", "create", "shared")
    async with Producer("host-writers", namesrv=cluster.namesrv) as producer:
        await producer.send(Message("shared", b"from the host"))
    cluster.dejamq("send", "shared", "from a container")
    shown = cluster.dejamq("consume", "shared", "--from", "begin", "-o", "json")
    assert sorted(json.loads(line)["body"] for line in shown.splitlines()) == ["from a container", "from the host"]


def test_a_stopped_server_drains_and_ends_with_status_0(another_cluster: ComposeCluster) -> None:
    another_cluster.dejamq("send", "orders", "kept")
    another_cluster.stop(*SERVERS)
    assert {another_cluster.state(service)["ExitCode"] for service in SERVERS} == {0}


def acknowledged(journal_dir: Path) -> set[str]:
    """The unique keys whose send was answered with success, from the producers' journals."""
    tries: dict[tuple[str, int], list[str]] = {}
    keys: set[str] = set()
    for event in lines.events(lines.files_in(journal_dir), SendTry, SendResultEvent):
        if isinstance(event, SendTry):
            tries[event.boot_id, event.request_seq] = event.unique_keys
        elif event.outcome == "ok":
            keys.update(tries[event.boot_id, event.request_seq])
    return keys


def charged(ledger: Path) -> set[str]:
    """The unique keys of the orders that were charged, by whichever consumer."""
    if not ledger.exists():
        return set()
    with closing(sqlite3.connect(ledger, timeout=30)) as database:
        try:
            return {row[0] for row in database.execute("SELECT message_id FROM charges")}
        except sqlite3.OperationalError:  # the first consumer is just making the table
            return set()


def audit(cluster: ComposeCluster, out: Path) -> dict[str, object]:
    """The verdict from the journals alone: at the level forensic they know every record."""
    command = [sys.executable, "-m", "dejamq_analytics", str(cluster.journal_dir), f"--out={out}"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, timeout=200, check=False)
    assert (out / "verdict.json").exists(), done.stdout + done.stderr
    verdict: dict[str, object] = json.loads((out / "verdict.json").read_text(encoding="utf-8"))
    return verdict


def play_kills(cluster: ComposeCluster, ledger: Path) -> None:
    """Orders flow while containers die one after the other; the servers come back, the clients do not.

    The consumers have shared the queues before the first order, and one of them is gone before the broker comes back:
    two that join at once may own a queue together for a moment, which is a cause that this audit does not decide yet.
    """

    def flow_on(orders: int, text: str) -> None:
        goal = len(charged(ledger)) + orders
        cluster.wait_until(lambda: len(charged(ledger)) > goal, f"orders flow {text}")

    cluster.dejamq("topic", "create", "orders", "--queues", "4")
    cluster.start("consumer-a", "consumer-b")
    wait_until(lambda: sharing(cluster.journal_dir) == 2, "both consumers have queues")
    cluster.start("producer", settings={"DEJAMQ_ORDERS": "600000", "DEJAMQ_RATE": "500"})
    flow_on(500, "with everybody")
    cluster.kill("consumer-a")
    flow_on(500, "without consumer-a")
    for server in ("namesrv-a", "broker-a"):
        cluster.kill(server)
        flow_on(300, f"without {server}")
        cluster.restart(server)
    flow_on(300, "again")
    cluster.kill("producer")


def test_kills_lose_nothing_that_was_acknowledged_and_every_duplicate_is_explained(
    another_cluster: ComposeCluster, tmp_path: Path
) -> None:
    ledger = another_cluster.demo_dir / "ledger.db"
    play_kills(another_cluster, ledger)
    promised = acknowledged(another_cluster.journal_dir)
    assert len(promised) > 1_000
    wait_until(lambda: promised <= charged(ledger), "every acknowledged order is charged", deadline_s=90)
    another_cluster.stop("consumer-b", *SERVERS)
    verdict = audit(another_cluster, tmp_path / "audit")
    assert (verdict["lost"], verdict["undetermined"]) == (0, 0), verdict
    causes = verdict["causes"]
    assert isinstance(causes, dict)
    assert sum(causes.values()) == verdict["duplicates"]
