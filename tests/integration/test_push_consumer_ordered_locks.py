"""Queue locks over real connections to a broker."""

from pathlib import Path

import pytest
from broker_wire import Wire, a_run, running
from consumer_cluster import servers, until
from dejamq import ReceivedMessage
from dejamq_broker.app import Broker
from dejamq_proto import client_pb2 as pb
from dejamq_proto.common_pb2 import QueueKey


async def lock(wire: Wire, *queue_ids: int) -> list[int]:
    queues = [QueueKey(topic="orders", queue_id=queue_id) for queue_id in queue_ids]
    request = pb.LockBatchRequest(caller=wire.caller(), group="g", queues=queues)
    return [key.queue_id for key in (await wire.call(wire.client.LockBatch, request)).locked]


async def unlock(wire: Wire, *queue_ids: int) -> None:
    queues = [QueueKey(topic="orders", queue_id=queue_id) for queue_id in queue_ids]
    await wire.call(wire.client.UnlockBatch, pb.UnlockBatchRequest(caller=wire.caller(), group="g", queues=queues))


async def test_one_member_at_a_time_gets_a_lock_and_a_batch_is_granted_in_part(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, Wire(broker.address, "a") as one, Wire(broker.address, "b") as two:
        assert await lock(one, 0, 1) == [0, 1]
        assert await lock(two, 1, 2) == [2]
        await unlock(two, 1)
        assert await lock(two, 1) == []
        await unlock(one, 1)
        assert await lock(two, 1) == [1]


async def test_a_broker_that_restarts_has_forgotten_all_locks(tmp_path: Path) -> None:
    """Cause R10."""
    async with running(tmp_path) as broker, Wire(broker.address, "a") as one:
        assert await lock(one, 0) == [0]
    async with running(tmp_path) as broker, Wire(broker.address, "b") as two:
        assert await lock(two, 0) == [0]


async def test_a_lock_outlives_the_connection_of_its_owner(tmp_path: Path) -> None:
    """Unlike a membership: whoever takes over a queue of a killed member waits for the lock's end."""
    async with running(tmp_path, rebalance_lock_max_live_time_ms=600_000) as broker:
        async with Wire(broker.address, "a") as one:
            assert await lock(one, 0) == [0]
        async with Wire(broker.address, "b") as two:
            assert await lock(two, 0) == []


async def test_while_a_lock_lives_what_is_sent_to_the_retry_topic_is_dead_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        await wire.heartbeat_stream("g")
        await wire.send(a_run("%RETRY%g", [b"first"], reconsume_times=1))
        assert (_count(broker, "%RETRY%g"), _count(broker, "%DLQ%g")) == (1, 0)
        await lock(wire, 0)
        await wire.send(a_run("%RETRY%g", [b"second"], reconsume_times=1))
        assert (_count(broker, "%RETRY%g"), _count(broker, "%DLQ%g")) == (1, 1)
        await unlock(wire, 0)
        await wire.send(a_run("%RETRY%g", [b"third"], reconsume_times=1))
        assert (_count(broker, "%RETRY%g"), _count(broker, "%DLQ%g")) == (2, 1)


def _count(broker: Broker, topic: str) -> int:
    return broker.domain.store.max_offset(topic, 0) if broker.domain.tables.topics.get(topic) else 0


async def test_an_ordered_and_a_concurrent_member_of_one_group_are_both_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(message: ReceivedMessage) -> None: ...

    async with servers(tmp_path) as here:
        await here.send("x")
        one, two = here.consumer(heartbeat_broker_interval_ms=50), here.consumer(ordered=True)
        for consumer in (one, two):
            consumer.subscribe("orders", handler)
        async with one, two:
            first, second = one.client_id, two.client_id
            await until(lambda: f"{first} has the handlers concurrent, {second} has in order" in caplog.text)
            await until(lambda: f"{second} has the handlers in order, {first} has concurrent" in caplog.text)
    loggers = {record.name for record in caplog.records if "group_differs" in record.getMessage()}
    assert loggers == {"dejamq", "dejamq_broker.members.clients"}
