"""A broker that is killed again and again while messages are popped: none is lost, and nothing comes twice unasked."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dejamq import BrokerUnavailable, DejamqError, Message, SimpleConsumer
from dejamq_lab import Cluster
from journalled import journalled

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

MESSAGES, KILLS, INVISIBLE_MS = 400, 3, 4_000


async def test_a_killed_broker_loses_no_popped_message_and_gives_none_twice_by_itself(tmp_path: Path) -> None:
    seen: Counter[bytes] = Counter()
    done: set[bytes] = set()
    async with Cluster(processes=True, namesrvs=1, topics={"orders": 4}, directory=tmp_path) as cluster:
        async with cluster.producer("p") as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"%d" % number)) for number in range(MESSAGES)))
        consumer = SimpleConsumer("g", namesrv=cluster.namesrv)
        consumer.subscribe("orders")
        async with consumer:
            killing = asyncio.create_task(kill_again_and_again(cluster))
            async with asyncio.timeout(120):
                while len(done) < MESSAGES or not killing.done():
                    assert not (killing.done() and killing.exception()), killing.exception()
                    await one_round(consumer, seen, done)
            await killing
            assert await consumer.receive(timeout_ms=INVISIBLE_MS + 2_000, invisible_ms=INVISIBLE_MS) == []
    lines = [line for path in cluster_journals(cluster) for line in journalled(path)]
    popped = Counter(place for line in lines if line["event"] == "POP" for place in places(line))
    revived = [line for line in lines if line["event"] == "REVIVE"]
    assert set(popped.values()) == {1}, "a message was popped twice at one place (B9)"
    of_delivery = Counter((line["topic"], line["queue_id"], line["queue_offset"]) for line in revived)
    assert set(of_delivery.values()) <= {1}, "a delivery was revived twice (B8, B10)"
    acked = {
        (line["topic"], line["queue_id"], offset)
        for line in lines
        if line["event"] == "ACK" and line.get("outcome", "ok") == "ok"
        for offset in line["queue_offsets"]
    }
    assert not acked & set(of_delivery), "a delivery was revived although it was acknowledged"


async def one_round(consumer: SimpleConsumer, seen: Counter[bytes], done: set[bytes]) -> None:
    try:
        messages = await consumer.receive(max_messages=7, invisible_ms=INVISIBLE_MS, timeout_ms=1_000)
        seen.update(message.body for message in messages)
        if messages:
            outcomes = await asyncio.gather(*(consumer.ack(message) for message in messages), return_exceptions=True)
            for message, outcome in zip(messages, outcomes, strict=True):
                if outcome is None:
                    assert message.body not in done, f"{message.body!r} came after it was acknowledged"
                    done.add(message.body)
                else:
                    assert isinstance(outcome, DejamqError), outcome
    except BrokerUnavailable:
        await asyncio.sleep(0.1)


async def kill_again_and_again(cluster: Cluster) -> None:
    broker = cluster.broker("broker-a")
    for _ in range(KILLS):
        await asyncio.sleep(0.4)
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.restart)


def cluster_journals(cluster: Cluster) -> list[Path]:
    return sorted(Path(cluster.journal_dir).glob("broker-*.jsonl"))


def places(line: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(line["topic"], line["queue_id"], offset) for offset in line["queue_offsets"]]
