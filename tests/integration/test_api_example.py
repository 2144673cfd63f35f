"""The first lines that a user types, as they are written down for them."""

import pytest
from dejamq import LitePullConsumer, Message, MessageQueue, Producer, SendStatus
from dejamq_lab import Cluster


async def test_what_is_sent_has_a_status_two_ids_and_a_place() -> None:
    async with Cluster(topics={"orders": 4}) as cluster:
        async with Producer("order-service", namesrv=cluster.namesrv) as producer:
            message = Message("orders", b"paid", tags="paid", keys=["order-17"])
            result = await producer.send(message)
            again = await producer.send(message)
        assert result.status is SendStatus.SEND_OK
        assert result.message_id == again.message_id == message.message_id
        assert result.offset_message_id != again.offset_message_id
        assert result.queue == MessageQueue("orders", "broker-a", result.queue.queue_id)

        async with LitePullConsumer("billing", namesrv=cluster.namesrv, auto_commit=False) as consumer:
            consumer.assign([result.queue])
            await consumer.wait_assigned()
            consumer.seek(result.queue, result.queue_offset)
            (received,) = await consumer.poll(timeout_ms=20_000, max_messages=1)
        assert (received.message_id, received.offset_message_id) == (result.message_id, result.offset_message_id)
        assert (received.tags, list(received.keys), received.body) == ("paid", ["order-17"], b"paid")
        assert (received.queue, received.queue_offset) == (result.queue, result.queue_offset)


async def test_without_an_address_the_environment_tells_where_the_name_server_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Cluster(topics={"orders": 4}) as cluster:
        monkeypatch.setenv("DEJAMQ_NAMESRV", cluster.namesrv)
        async with Producer("order-service") as producer:
            assert (await producer.send(Message("orders", b"paid"))).status is SendStatus.SEND_OK
    monkeypatch.delenv("DEJAMQ_NAMESRV")
    assert Producer("order-service").config.namesrv == "127.0.0.1:9876"
    assert Producer("g", namesrv=["10.0.0.1:9876", "10.0.0.2:9876"]).config.namesrv == "10.0.0.1:9876;10.0.0.2:9876"
