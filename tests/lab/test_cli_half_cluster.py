"""The command while a broker is frozen, as a person meets it; and what ends a command from outside."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from cli_runner import Ran, run_beside
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Two brokers with a topic and a group at both."""
    directory: Path = tmp_path_factory.mktemp("cluster")
    async with Cluster(brokers=2, processes=True, topics={"orders": 1}, directory=directory) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def frozen(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """broker-b does not answer; nobody waits long for it."""
    monkeypatch.setenv("DEJAMQ_MQ_CLIENT_API_TIMEOUT_MS", "300")
    broker = cluster.broker("broker-b")
    assert isinstance(broker, ServerProcess)
    broker.pause()
    yield
    broker.resume()
    await cluster.ready()


async def dejamq(cluster: Cluster, *arguments: str) -> Ran:
    """Once more while the machine is so busy that broker-a does not answer in the short time either."""
    async with asyncio.timeout(30):
        while True:
            ran = await run_beside(*arguments, "--namesrv", cluster.namesrv)
            if "broker-a" not in ran.errors:
                return ran


async def test_half_a_cluster_answers_what_it_can_names_who_is_silent_and_cannot_tell(
    cluster: Cluster, frozen: None
) -> None:
    brokers = await dejamq(cluster, "broker", "list", "-o", "json")
    assert [(row["broker"], row["answers"]) for row in brokers.objects()[0]] == [
        ("broker-a", True),
        ("broker-b", False),
    ]
    topic = await dejamq(cluster, "topic", "describe", "orders", "-o", "json")
    assert [row["broker"] for row in topic.objects()[0]["queues"]] == ["broker-a"]
    others = [
        await dejamq(cluster, *arguments)
        for arguments in (("group", "list"), ("group", "lag"), ("client", "list"), ("offset", "get", "billing"))
    ]
    for ran in (brokers, topic, *others):
        assert ran.status == 3
        assert "broker-b does not answer" in ran.one_line()


async def test_half_a_cluster_is_not_changed(cluster: Cluster, frozen: None) -> None:
    for arguments in (
        ("topic", "create", "half"), ("topic", "delete", "orders", "--yes"), ("group", "pause", "billing"),
        ("group", "delete", "billing", "--yes"), ("offset", "reset", "billing", "orders", "--to-end"),
    ):  # fmt: skip
        ran = await dejamq(cluster, *arguments)
        assert (ran.status, ran.output) == (3, ""), arguments
        assert "no answer from broker-b" in ran.one_line()
        assert "nothing was changed" in ran.errors
    assert [row["topic"] for row in (await dejamq(cluster, "topic", "list", "-o", "json")).json()] == ["orders"]


async def test_who_leaves_the_silent_broker_out_by_name_can_change_the_other(cluster: Cluster, frozen: None) -> None:
    ran = await dejamq(cluster, "topic", "create", "half", "--broker", "broker-a", "-o", "json")
    assert [(row["broker"], row["change"]) for row in ran.json()] == [("broker-a", "created")]
    gone = await dejamq(cluster, "topic", "delete", "half", "--broker", "broker-a", "--yes", "-o", "json")
    assert [(row["broker"], row["change"]) for row in gone.json()] == [("broker-a", "deleted")]


async def test_health_is_no_while_a_broker_does_not_answer(cluster: Cluster, frozen: None) -> None:
    ran = await dejamq(cluster, "cluster", "health", "-o", "json")
    assert ran.status == 1
    assert [(row["name"], row["healthy"]) for row in json.loads(ran.output)[1:]] == [
        ("broker-a", True), ("broker-b", False),
    ]  # fmt: skip


async def test_a_watch_shows_one_look_a_line_and_ends_with_ctrl_c(cluster: Cluster) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", "broker", "list", "--watch", "0.1", "-o", "json",
        "--namesrv", cluster.namesrv, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    looks = [json.loads(await process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert [[row["broker"] for row in look["answer"]] for look in looks] == [["broker-a", "broker-b"]] * 2
    assert looks[0]["timestamp_ms"] < looks[1]["timestamp_ms"]
    assert (process.returncode, errors) == (130, b"")


async def test_a_watch_whose_reader_has_enough_ends_quietly(cluster: Cluster) -> None:
    command = f"{sys.executable} -m dejamq_cli broker list --watch=0.1 --namesrv '{cluster.namesrv}' | head -n 1"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", f"set -o pipefail; {command}", stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate()
    assert output.count(b"\n") == 1
    assert (process.returncode, errors) == (141, b"")
