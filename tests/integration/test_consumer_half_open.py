"""Consumers whose connection to the broker is half open: nothing comes and nothing breaks. They go on by themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dejamq import ConsumeFrom, LitePullConsumer, Message, Producer, PushConsumer, ReceivedMessage
from producer_site import Site
from producer_traffic import until
from relay import Relay, quick_keepalive
from scripted_broker import ScriptedNamesrv

QUEUES = 4
QUICK: dict[str, Any] = {
    "consume_from": ConsumeFrom.FIRST_OFFSET, "reconnect_interval_ms": 50, "rebalance_min_interval_ms": 50,
    "rebalance_wait_interval_ms": 200,
}  # fmt: skip


@asynccontextmanager
async def apart(directory: Path) -> AsyncIterator[tuple[Producer, str, Relay]]:
    """A producer beside the broker, a name server that sends consumers through a relay, and that relay."""
    site = Site(directory)
    await site.namesrv.start()
    broker = await site.start_broker("broker-a")
    relay = Relay(broker.address)
    through: Any = SimpleNamespace(name="broker-a", address=await relay.start())
    topics = {"t": [through], "%RETRY%g2": [through]}
    namesrv = ScriptedNamesrv(topics, QUEUES)  # type: ignore[abstract]  # answers only what is asked here
    await namesrv.start()
    try:
        async with site.producer(default_topic_queue_nums=QUEUES) as producer:
            await send(producer, 0)
            yield producer, namesrv.address, relay
    finally:
        await site.close()
        await namesrv.close()
        await relay.close()


async def send(producer: Producer, first: int) -> None:
    """Ten messages, some in each queue."""
    for number in range(first, first + 10):
        await producer.send(Message("t", b"%d" % number))


def numbers(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_push_consumer_gets_what_came_while_its_connection_was_half_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    quick_keepalive(monkeypatch)
    seen: set[bytes] = set()

    async def handle(message: ReceivedMessage) -> None:
        seen.add(message.body)

    async with apart(tmp_path) as (producer, namesrv, relay):
        consumer = PushConsumer("g2", namesrv=namesrv, ordered=ordered, **QUICK)
        consumer.subscribe("t", handle)
        async with consumer:
            await until(lambda: seen == numbers(10))
            relay.go_deaf()
            await send(producer, 10)
            await until(lambda: seen == numbers(20))
            assert relay.accepted >= 2


async def test_a_lite_pull_consumer_gets_what_came_while_its_connection_was_half_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_keepalive(monkeypatch)
    async with apart(tmp_path) as (producer, namesrv, relay), LitePullConsumer("g2", namesrv=namesrv, **QUICK) as lite:
        lite.subscribe("t")
        seen = await polled(lite, 10)
        relay.go_deaf()
        await send(producer, 10)
        assert seen | await polled(lite, 10) == numbers(20)
        assert relay.accepted >= 2


async def polled(lite: LitePullConsumer, count: int) -> set[bytes]:
    """Poll until so many different messages have come."""
    seen: set[bytes] = set()

    async def poll() -> bool:
        seen.update(message.body for message in await lite.poll(timeout_ms=200))
        return len(seen) >= count

    while not await poll():
        pass
    return seen
