"""The data commands while one of two brokers does not answer: what the other has is told, and who is missing."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cli_cluster import dejamq, make
from dejamq import Message, SendResult
from dejamq_lab import Cluster

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
Half = tuple[Cluster, list[SendResult]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def half() -> AsyncIterator[Half]:
    """Two messages are at broker-a, one is at broker-b, which is stopped then."""
    async with Cluster(brokers=2, time_scale=0.1, journal_level="off", processes=True) as cluster:
        await make(cluster, "orders", queues=1)
        async with cluster.producer("shop") as producer:
            at_a, at_b = await producer.publish_queues("orders")
            sent = [
                await producer.send(Message("orders", b"order %d" % number, keys="same"), queue=queue)
                for number, queue in enumerate((at_a, at_b, at_a))
            ]
        cluster.broker("broker-b").pause()
        yield cluster, sent
        cluster.broker("broker-b").resume()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEJAMQ_MQ_CLIENT_API_TIMEOUT_MS", "700")
    monkeypatch.setattr("dejamq_cli.access.topic_reader.TIMEOUT_MS", 700)


async def test_what_the_other_broker_has_is_read(half: Half) -> None:
    ran = await dejamq(half[0], "consume", "orders", "--body")
    assert (ran.status, ran.output) == (3, "order 0\norder 2\n")
    assert ran.one_line().startswith("dejamq: broker-b does not answer")


async def test_a_message_of_the_other_broker_is_shown(half: Half) -> None:
    ran = await dejamq(half[0], "message", "get", half[1][0].message_id)
    assert ran.status == 3
    assert "order 0\n" in ran.output
    assert ran.one_line().startswith("dejamq: broker-b does not answer")


async def test_whether_the_missing_broker_has_a_message_cannot_be_told(half: Half) -> None:
    for command in (("get", half[1][1].message_id), ("by-key", "orders", "other")):
        ran = await dejamq(half[0], "message", *command)
        assert ran.status == 3, command
        assert ran.one_line().startswith("dejamq: broker-b does not answer")


async def test_keys_are_looked_up_where_somebody_answers(half: Half) -> None:
    ran = await dejamq(half[0], "message", "by-key", "orders", "same", "-o", "json")
    assert ran.status == 3
    assert '"body":"order 0"' in ran.output
    assert '"body":"order 2"' in ran.output


async def test_dead_letters_are_listed_in_part_but_not_replayed_in_part(half: Half) -> None:
    listed = await dejamq(half[0], "dlq", "list", "billing")
    assert (listed.status, listed.output) == (3, "billing has no dead letters\n")
    replayed = await dejamq(half[0], "dlq", "replay", "billing", "--all")
    assert (replayed.status, replayed.output) == (3, "")
    assert "nothing was changed" in replayed.one_line()
