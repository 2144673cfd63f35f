"""Simple consumers for tests: short intervals, journalled, addressed to the servers of ``consumer_cluster``."""

import asyncio
from collections.abc import Callable
from typing import Any

from consumer_cluster import QUICK, Servers
from dejamq import ReceivedMessage, SimpleConsumer

KNOWN = ("poll_name_server_interval_ms", "reconnect_interval_ms", "broker_suspend_max_time_ms")
SETTINGS: dict[str, Any] = {name: QUICK[name] for name in KNOWN}


def simple(here: Servers, group: str = "g", topic: str = "orders", **settings: Any) -> SimpleConsumer:
    journal = {"journal_dir": str(here.directory / "journal"), "journal_level": "forensic"}
    consumer = SimpleConsumer(group, namesrv=here.namesrv.address, **SETTINGS | journal | settings)
    if topic:
        consumer.subscribe(topic)
    return consumer


async def received(
    consumer: SimpleConsumer, enough: Callable[[list[ReceivedMessage]], object], *, invisible_ms: int = 30_000,
    ack: bool = False,
) -> list[ReceivedMessage]:  # fmt: skip
    """Everything that receives return until there is enough."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(30):
        while not enough(found):
            messages = await consumer.receive(invisible_ms=invisible_ms, timeout_ms=300)
            if ack and messages:
                await consumer.ack(*messages)
            found += messages
    return found


async def nothing_comes(consumer: SimpleConsumer, timeout_ms: int = 500) -> bool:
    return await consumer.receive(timeout_ms=timeout_ms) == []


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)
