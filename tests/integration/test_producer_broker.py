"""A producer against a real name server and real brokers, in one process on free ports."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dejamq import BrokerUnavailable, DejamqError, Message, MessageQueue, Producer, SendStatus
from dejamq.net.instance import Instance
from dejamq.values.config import ClientConfig
from dejamq_proto.client_pb2 import ConsumerData
from dejamq_proto.codes import Code
from dejamq_proto.records.hosts import parse_offset_message_id
from producer_site import STORE, Site, routed, stored

pytestmark = pytest.mark.usefixtures("transport")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.namesrv.start()
    await site.start_broker("broker-a")
    yield site
    await site.close()


@pytest.fixture
async def producer(site: Site) -> AsyncIterator[Producer]:
    async with Producer("g", namesrv=site.namesrv.address, send_msg_timeout_ms=10_000) as producer:
        yield producer


async def test_what_is_sent_to_a_new_topic_is_stored_where_the_result_says(site: Site, producer: Producer) -> None:
    message = Message("orders", b"paid", tags="paid", keys=["order-17"], properties={"region": "eu"})
    result = await producer.send(message)
    assert result.status is SendStatus.SEND_OK
    (record,) = await stored(site, result.queue)
    assert (record.topic, record.body, record.queue_id) == ("orders", b"paid", result.queue.queue_id)
    assert (record.queue_offset, record.log_offset) == (result.queue_offset, result.log_offset)
    assert record.offset_message_id == result.offset_message_id
    assert record.store_timestamp_ms == result.store_timestamp_ms
    properties = record.properties
    assert properties["UNIQ_KEY"] == result.message_id == message.message_id
    assert (properties["TAGS"], properties["KEYS"], properties["region"]) == ("paid", "order-17", "eu")


async def test_ten_thousand_messages_over_several_files_have_their_places(site: Site, producer: Producer) -> None:
    await producer.send(Message("many", b"first"))
    queue = MessageQueue("many", "broker-a", 0)
    futures = [producer.submit(Message("many", b"%d" % n + b"x" * 1024), queue=queue) for n in range(10_000)]
    await producer.flush()
    results = [future.result() for future in futures]
    offsets = [result.queue_offset for result in results]
    assert offsets == list(range(offsets[0], offsets[0] + 10_000))
    places = [parse_offset_message_id(result.offset_message_id)[1] for result in results]
    assert places == sorted(set(places))
    assert places[-1] > 2 * STORE.mapped_file_size_commit_log
    by_offset = {record.queue_offset: record for record in await stored(site, queue)}
    for result in results[: len(by_offset) - 1]:
        assert by_offset[result.queue_offset].log_offset == result.log_offset


async def test_messages_of_one_sharding_key_are_in_one_queue_in_order(site: Site, producer: Producer) -> None:
    await producer.send(Message("ordered", b"create"))
    results = [await producer.send(Message("ordered", b"%d" % n, sharding_key="user-1")) for n in range(20)]
    assert len({result.queue for result in results}) == 1
    records = await stored(site, results[0].queue)
    bodies = [record.body for record in records if "__SHARDINGKEY" in record.properties]
    assert bodies == [b"%d" % n for n in range(20)]


async def test_a_broker_that_restarts_is_found_again_and_keeps_its_messages(site: Site, producer: Producer) -> None:
    queue = (await producer.send(Message("t", b"before"))).queue
    await site.restart_broker("broker-a")
    async with asyncio.timeout(20):
        while True:
            try:
                result = await producer.send(Message("t", b"after"), queue=queue)
                break
            except BrokerUnavailable:
                await asyncio.sleep(0.05)
    assert result.queue_offset >= 1
    assert (await stored(site, queue))[0].body == b"before"


async def test_a_closed_broker_is_avoided_by_retry(site: Site) -> None:
    await site.start_broker("broker-b")
    async with Producer("g", namesrv=site.namesrv.address, send_msg_timeout_ms=10_000) as producer:
        queues = await producer.publish_queues("t")
        assert {queue.broker_name for queue in queues} == {"broker-a", "broker-b"}
        for _ in range(8):
            await producer.send(Message("t", b"x"))
        await site.brokers["broker-b"].close()
        for _ in range(8):
            assert (await producer.send(Message("t", b"y"))).queue.broker_name == "broker-a"


async def test_a_delayed_message_is_taken_and_a_batch_is_stored_in_one_queue(site: Site, producer: Producer) -> None:
    await producer.send(Message("t", b"create"))
    assert (await producer.send(Message("t", b"later", delay_level=3))).status is SendStatus.SEND_OK
    results = await producer.send_batch([Message("t", b"%d" % n) for n in range(30)])
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset - results[0].queue_offset for result in results] == list(range(30))


async def test_a_queue_that_does_not_exist_is_refused(producer: Producer) -> None:
    await producer.send(Message("t", b"create"))
    with pytest.raises(DejamqError) as caught:
        await producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-a", 99))
    assert caught.value.code == Code.INVALID_PARAMETER
    assert caught.value.definite


async def test_a_queue_of_an_unknown_broker_is_refused_at_once(producer: Producer) -> None:
    await producer.send(Message("t", b"create"))
    with pytest.raises(BrokerUnavailable, match="broker-z") as caught:
        await producer.send(Message("t", b"x"), queue=MessageQueue("t", "broker-z", 0))
    assert caught.value.definite


async def test_many_concurrent_senders_share_runs_and_each_gets_its_own_place(producer: Producer) -> None:
    async def send_some(sender: int) -> list[tuple[MessageQueue, int]]:
        results = [await producer.send(Message("t", b"%d-%d" % (sender, n))) for n in range(20)]
        return [(result.queue, result.queue_offset) for result in results]

    places = [place for some in await asyncio.gather(*map(send_some, range(64))) for place in some]
    assert len(set(places)) == 64 * 20


async def test_offsets_and_members_are_asked_of_a_real_broker(site: Site, producer: Producer) -> None:
    result = await producer.send(Message("t", b"x"))
    config = dataclasses.replace(ClientConfig(), namesrv=site.namesrv.address)
    instance = Instance(config, role="consumer")
    instance.register_consumer(lambda: ConsumerData(group="readers", message_model="CLUSTERING", consume_type="PUSH"))
    heard = asyncio.Event()
    instance.on_ids_changed("readers", heard.set)
    await instance.start()
    await routed(instance, "t")
    assert await instance.heartbeat() == []
    link = instance.link(site.brokers["broker-a"].address)
    async with asyncio.timeout(10):
        await heard.wait()
    assert await link.consumer_list("readers") == [instance.client_id]
    queue_id = result.queue.queue_id
    async with asyncio.timeout(10):
        while await link.max_offset("t", queue_id) != 1:
            await asyncio.sleep(0.01)
    assert await link.min_offset("t", queue_id) == 0
    await link.update_offset("readers", "t", queue_id, 1)
    assert await link.query_offset("readers", "t", queue_id) == 1
    await instance.close()
