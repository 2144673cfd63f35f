"""The deployment modes as people start them: one profile each, and what is left when a master's container is killed.

One project goes through all modes, in any order: its stores stay.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from compose_cluster import ComposeCluster, wait_until
from dejamq import ConsumeFrom, DejamqError, Message, Producer, PushConsumer, SendStatus
from dejamq_lab.cluster.rpc_control import runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1200)]
TOPIC = "orders"
DEAD, LEFT = "broker-a", "broker-b"


@pytest.fixture(scope="module")
def project(image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeCluster]:
    cluster = ComposeCluster(tmp_path_factory.mktemp("modes"), "masters")
    try:
        yield cluster
    finally:
        cluster.down()


def start(cluster: ComposeCluster, mode: str) -> None:
    """The mode's one command, after those servers have ended that are not of it."""
    cluster.change_to(mode)
    wait_until(cluster.is_whole, "everybody serves and follows")
    cluster.dejamq("topic", "create", TOPIC, "--queues", "2")


@asynccontextmanager
async def sending(cluster: ComposeCluster) -> AsyncIterator[dict[str, str]]:
    """One message after the other from this machine, until the end; the ids of what was acknowledged, with the broker.

    Only SEND_OK is: FLUSH_SLAVE_TIMEOUT and SLAVE_NOT_AVAILABLE promise nothing.
    """
    acknowledged: dict[str, str] = {}

    async def send(producer: Producer) -> None:
        while True:
            with suppress(DejamqError):
                result = await producer.send(Message(TOPIC, b"an order"))
                if result.status is SendStatus.SEND_OK:
                    acknowledged[result.message_id] = result.queue.broker_name

    async with Producer("till", namesrv=cluster.namesrv) as producer:
        task = asyncio.create_task(send(producer))
        try:
            yield acknowledged
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def flows(acknowledged: dict[str, str], broker: str) -> None:
    """Wait until this broker has acknowledged 20 messages more."""

    def found() -> int:
        return list(acknowledged.values()).count(broker)

    goal = found() + 20
    async with asyncio.timeout(60):
        while found() < goal:
            await asyncio.sleep(0.05)


def published(project: ComposeCluster, server: str) -> str:
    return f"127.0.0.1:{project.ports[f'DEJAMQ_BROKER_{server}_PORT']}"


async def copied(project: ComposeCluster) -> None:
    """Wait until the slave has its master's log, and its tables as they are now. Both are asked on published ports."""
    begin = time.monotonic()
    async with asyncio.timeout(60):
        while True:
            elapsed_ms = (time.monotonic() - begin) * 1000
            master, slave = [await runtime(published(project, server)) for server in ("A", "A_S1")]
            is_whole = master["commitLogMaxOffset"] == slave["commitLogMaxOffset"]
            if is_whole and int(slave["tablesCopiedMsAgo"] or elapsed_ms) < elapsed_ms:
                return
            await asyncio.sleep(0.1)


async def consumed(project: ComposeCluster, wanted: set[str]) -> None:
    """Wait until a new group has been given all of these messages."""
    got: set[str] = set()
    consumer = PushConsumer("billing", namesrv=project.namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC, lambda message: got.add(message.message_id))
    async with consumer, asyncio.timeout(60):
        while not wanted <= got:
            await asyncio.sleep(0.05)


def stored(cluster: ComposeCluster, service: str) -> set[str]:
    """The unique keys in a broker's log."""
    lines = cluster.dejamq("store", "dump", "/var/lib/dejamq/store", "-o", "json", at=service).splitlines()
    return {record["properties"]["UNIQ_KEY"] for record in map(json.loads, lines) if "properties" in record}


async def test_with_several_masters_the_others_take_what_is_sent_while_one_is_dead(project: ComposeCluster) -> None:
    start(project, "masters")
    project.unprofiled("up", "-d")
    assert project.containers().keys() == set(project.servers)  # who chooses no profile has the same
    async with sending(project) as acknowledged:
        await flows(acknowledged, DEAD)
        await asyncio.to_thread(project.kill, "broker-a")
        await flows(acknowledged, LEFT)


async def test_with_asynchronous_slaves_what_a_killed_master_had_is_consumed_from_its_slave(
    project: ComposeCluster,
) -> None:
    start(project, "async")
    async with sending(project) as acknowledged:
        await flows(acknowledged, DEAD)
    await copied(project)
    project.kill("broker-a")
    await consumed(project, {key for key, broker in acknowledged.items() if broker == DEAD})


async def test_with_synchronous_slaves_a_killed_master_takes_nothing_acknowledged_with_it(
    project: ComposeCluster,
) -> None:
    start(project, "sync")
    assert (await runtime(published(project, "A")))["brokerRole"] == "SYNC_MASTER"
    async with sending(project) as acknowledged:
        await flows(acknowledged, DEAD)
        await asyncio.to_thread(project.kill, "sync-broker-a")
        await flows(acknowledged, LEFT)
    assert {key for key, broker in acknowledged.items() if broker == DEAD} <= stored(project, "broker-a-s1")
