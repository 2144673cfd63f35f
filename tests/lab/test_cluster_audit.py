import asyncio
from pathlib import Path

import pytest
from dejamq import Admin, ConsumeFrom, Message, ReceivedMessage
from dejamq_lab import Cluster, ClusterFailed

pytestmark = pytest.mark.process


async def test_the_audit_of_a_quiet_cluster_is_clean(tmp_path: Path) -> None:
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with (
        Cluster(topics={"orders": 2}, directory=tmp_path) as cluster,
        cluster.push_consumer("shop", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer,
        cluster.producer("till") as producer,
    ):
        consumer.subscribe("orders", arrived.put)
        for number in range(10):
            await producer.send(Message("orders", b"%d" % number))
        async with asyncio.timeout(20):
            for _ in range(10):
                await arrived.get()
    verdict = await cluster.audit()
    assert (verdict.verdict, verdict.messages, verdict.deliveries, verdict.duplicates) == ("clean", 10, 10, 0)


async def test_what_an_operator_had_consumed_directly_is_expected(tmp_path: Path) -> None:
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue()
    async with (
        Cluster(topics={"orders": 2}, directory=tmp_path) as cluster,
        cluster.push_consumer("shop", consume_from=ConsumeFrom.FIRST_OFFSET) as consumer,
        cluster.producer("till") as producer,
        Admin(cluster.namesrv) as admin,
    ):
        consumer.subscribe("orders", arrived.put)
        sent = await producer.send(Message("orders", b"1"))
        async with asyncio.timeout(20):
            await arrived.get()
        await admin.consume_directly("shop", consumer.client_id, sent.offset_message_id)
    verdict = await cluster.audit()
    assert (verdict.verdict, verdict.deliveries, verdict.duplicates) == ("clean", 2, 0)
    assert verdict.expected_causes == {"L7": 1}


async def test_an_audit_without_journals_says_why_there_is_no_verdict(tmp_path: Path) -> None:
    with pytest.raises(ClusterFailed, match="the audit gave no verdict: "):
        await Cluster(directory=tmp_path).audit()
