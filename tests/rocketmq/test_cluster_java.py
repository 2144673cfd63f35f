"""A lab cluster whose consumers are RocketMQ's Java clients, which keep no journal: it says what came twice, why."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_wire import until
from dejamq import Message
from dejamq_analytics.sources.commit_log import scan
from dejamq_lab import Cluster
from dejamq_lab.machines.jars import jar_cache
from dejamq_lab.rocketmq import programs
from dejamq_lab.rocketmq.machine import Machine
from java_clients import jars_of, java

VERSION = "5.3.3"
TOPIC, GROUP = "orders", "billing"
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def member(cluster: Cluster, home: Path, *options: str) -> Iterator[Machine]:
    """A push consumer of RocketMQ's Java client with message trace on, in a process of its own."""
    jars = jars_of(VERSION)
    logging = programs.logging_of("client", jars, home.parent / "logging")
    class_path = programs.compiled(jars, jar_cache("rocketmq-actor", VERSION))
    command = java([logging, *class_path], home, "Actor", "consume", cluster.namesrv, TOPIC, GROUP, *options)
    machine = Machine(home.name, home, command)
    try:
        yield machine
    finally:
        machine.end()


def traces(cluster: Cluster, word: bytes) -> int:
    """How many records of a kind the stored trace messages have."""
    logs = [log for store in cluster.store_dirs for log in sorted((store / "commitlog").iterdir())]
    found = [record.body for log in logs for record, _ in scan(log) if record.topic == "RMQ_SYS_TRACE_TOPIC"]
    return sum(body.count(word) for body in found)


async def killed_in_the_middle(cluster: Cluster, homes: Sequence[Path]) -> None:
    """A member fails order-1 once and hangs in order-5; it is killed, and another member has what it had not told."""
    async with cluster.producer("orders") as producer:
        with member(cluster, homes[0], "fail=order-1", "slow=order-5:600000") as one:
            await asyncio.to_thread(one.wait, "ready")
            for number in range(8):
                await producer.send(Message(TOPIC, b"paid", keys=f"order-{number}"))
            await asyncio.to_thread(one.wait, "done", times=8)  # order-1 twice, order-5 never
            await until(lambda: traces(cluster, b"SubBefore") == 9 and traces(cluster, b"SubAfter") == 8, 60)
            await producer.send(Message(TOPIC, b"paid", keys="order-8"))  # the pull after it tells the offset
            await asyncio.to_thread(one.wait, "done", "order-8")
            one.kill()
    before = traces(cluster, b"SubAfter")
    with member(cluster, homes[1]) as two:
        for key in ("order-5", "order-6", "order-7"):
            await asyncio.to_thread(two.wait, "done", key)
        await until(lambda: traces(cluster, b"SubAfter") >= before + 3, 60)
        await asyncio.to_thread(two.stop)


async def test_a_cluster_says_what_its_java_members_were_given_twice_and_why(tmp_path: Path) -> None:
    settings = {"message_delay_level": "1s 1s 1s 1s"}
    homes = tmp_path / "billing-1", tmp_path / "billing-2"
    async with Cluster(topics={TOPIC: 1}, directory=tmp_path / "cluster", settings=settings) as cluster:
        await killed_in_the_middle(cluster, homes)
        twice = {(one.second.topic, one.second.queue_offset) for one in await cluster.duplicates(GROUP)}
        known = await cluster.audit()
        surer = await cluster.audit(logs=homes)
    hung = {(TOPIC, offset) for offset in (5, 6, 7)}
    assert hung <= twice <= hung | {(TOPIC, 8), (f"%RETRY%{GROUP}", 0)}, "the traces of the last ones may be lost"
    # the broker's journal and traces prove the retry that was asked for; why the others came again the log tells
    assert (known.expected_causes, known.causes, known.undetermined) == ({"L1": 1}, {}, len(twice))
    assert all("rocketmq_client.log" in missing for missing in known.undetermined_missing)
    assert surer.expected_causes == {"L1": 1}
    assert {"O1"} <= surer.causes.keys() <= {"O1", "O7"}
