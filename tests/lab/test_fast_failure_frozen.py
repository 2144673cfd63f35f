"""A broker that was frozen for a while: what waited in its sockets is refused, goes elsewhere, and is stored once."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from dejamq import Message
from dejamq_lab import Cluster
from dejamq_lab.cluster.process import ServerProcess
from journalled import journalled

pytestmark = pytest.mark.process

FROZEN_S, MESSAGES = 1.0, 40


def stored(journal: Path) -> Counter[str]:
    """How often each message was appended, by its unique key."""
    return Counter(key for event in journalled(journal, "APPEND", of="broker-*") for key in event["unique_keys"])


async def test_what_waited_for_a_frozen_broker_is_refused_and_stored_once_elsewhere(tmp_path: Path) -> None:
    settings = {"broker_fast_failure_enable": True}
    cluster = Cluster(brokers=2, processes=True, topics={"orders": 2}, directory=tmp_path, settings=settings)
    async with cluster:
        frozen = cluster.broker("broker-a")
        assert isinstance(frozen, ServerProcess)
        async with cluster.producer("till", send_msg_timeout_ms=20_000) as producer:
            for _ in range(8):  # each broker has seen some, and knows how quick they can be
                await producer.send(Message("orders", b"before"))
            frozen.pause()
            sends = [asyncio.create_task(producer.send(Message("orders", b"%d" % n))) for n in range(MESSAGES)]
            await asyncio.sleep(FROZEN_S)
            frozen.resume()
            results = await asyncio.gather(*sends)
    counts = stored(cluster.journal_dir)
    assert {counts[result.message_id] for result in results} == {1}
    refused = [line for line in (tmp_path / "broker-a" / "log").read_text().splitlines() if "send_refused" in line]
    assert refused
    assert all("[TIMEOUT_CLEAN_QUEUE]broker busy" in line for line in refused)
