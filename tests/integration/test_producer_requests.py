"""Requests and replies over real servers, and what becomes of requests that nobody answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker_wire import dialled
from consumer_cluster import Servers, servers, until
from dejamq import (
    ClientClosed,
    Code,
    DejamqError,
    InvalidName,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeout,
    reply_to,
)
from dejamq.rebalance.consume_from import ConsumeFrom
from dejamq_broker.tables.topics import TopicConfig
from producer_site import Site, bodies_at
from scripted_broker import scripted


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Servers]:
    async with servers(tmp_path) as site:
        await site.send("first", topic="questions")
        yield site


def answering(site: Servers, replier: Producer) -> PushConsumer:
    """A consumer that answers every question but ``silence`` with its text backwards."""
    consumer = site.consumer("answerers", consume_from=ConsumeFrom.LAST_OFFSET)

    async def answer(message: ReceivedMessage) -> None:
        if "CORRELATION_ID" in message.properties and message.body != b"silence":
            await replier.send(reply_to(message, message.body[::-1]))

    consumer.subscribe("questions", answer)
    return consumer


async def test_a_request_gets_the_reply_that_a_consumer_sent_for_it(site: Servers) -> None:
    async with site.producer() as producer, site.producer() as replier, answering(site, replier) as consumer:
        await consumer.wait_assigned(10_000)
        reply = await producer.request(Message("questions", b"abc", tags="t"), 10_000)
        assert reply.body == b"cba"
        assert reply.topic == "DefaultCluster_REPLY_TOPIC"
        assert reply.properties["REPLY_TO_CLIENT"]


async def test_many_requests_at_once_each_get_their_own_reply(site: Servers) -> None:
    async with site.producer() as producer, site.producer() as replier, answering(site, replier) as consumer:
        await consumer.wait_assigned(10_000)
        bodies = [b"question-%d" % number for number in range(200)]
        replies = await asyncio.gather(*(producer.request(Message("questions", body), 20_000) for body in bodies))
        assert [reply.body for reply in replies] == [body[::-1] for body in bodies]


async def test_a_large_reply_comes_unpacked(site: Servers) -> None:
    async with site.producer() as producer, site.producer() as replier, answering(site, replier) as consumer:
        await consumer.wait_assigned(10_000)
        reply = await producer.request(Message("questions", b"ab" * 50_000), 10_000)
        assert reply.body == b"ba" * 50_000


async def test_a_request_that_nobody_answers_ends_in_time_and_the_next_one_works(site: Servers) -> None:
    async with site.producer() as producer, site.producer() as replier, answering(site, replier) as consumer:
        await consumer.wait_assigned(10_000)
        with pytest.raises(RequestTimeout, match="was sent") as caught:
            await producer.request(Message("questions", b"silence"), 2_000)
        assert (caught.value.code, caught.value.definite) == (Code.REQUEST_TIMEOUT, False)
        assert (await producer.request(Message("questions", b"xy"), 10_000)).body == b"yx"


async def test_a_reply_whose_request_has_ended_is_dropped_and_the_replier_is_content(site: Servers) -> None:
    seen: list[ReceivedMessage] = []
    async with site.producer() as producer, site.producer() as replier:
        consumer = site.consumer("late", consume_from=ConsumeFrom.LAST_OFFSET)

        async def keep(message: ReceivedMessage) -> None:
            seen.append(message)

        consumer.subscribe("questions", keep)
        async with consumer:
            await consumer.wait_assigned(10_000)
            with pytest.raises(RequestTimeout):
                await producer.request(Message("questions", b"x"), 2_000)
            await until(lambda: any("CORRELATION_ID" in message.properties for message in seen))
            result = await replier.send(reply_to(seen[-1], b"too late"))
            assert result.queue.topic == "DefaultCluster_REPLY_TOPIC"


async def test_a_reply_to_a_client_that_is_gone_is_refused_at_last(site: Servers) -> None:
    seen: list[ReceivedMessage] = []
    async with site.producer() as replier:
        consumer = site.consumer("late", consume_from=ConsumeFrom.LAST_OFFSET)

        async def keep(message: ReceivedMessage) -> None:
            seen.append(message)

        consumer.subscribe("questions", keep)
        async with consumer:
            await consumer.wait_assigned(10_000)
            async with site.producer() as producer:
                with pytest.raises(RequestTimeout):
                    await producer.request(Message("questions", b"x"), 2_000)
            await until(lambda: any("CORRELATION_ID" in message.properties for message in seen))
            with pytest.raises(DejamqError, match="has no channel to this broker"):
                await replier.send(reply_to(seen[-1], b"too late"))


async def test_a_request_that_is_cancelled_waits_for_nothing_and_the_producer_goes_on(site: Servers) -> None:
    async with site.producer() as producer, site.producer() as replier, answering(site, replier) as consumer:
        await consumer.wait_assigned(10_000)
        asking = asyncio.create_task(producer.request(Message("questions", b"silence"), 60_000))
        await until(lambda: producer.inspect().waiting_requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not producer.inspect().waiting_requests
        assert (await producer.request(Message("questions", b"xy"), 10_000)).body == b"yx"


async def test_closing_ends_the_requests_that_wait(site: Servers) -> None:
    producer = site.producer()
    await producer.start()
    asking = asyncio.create_task(producer.request(Message("questions", b"x"), 60_000))
    await until(lambda: producer.inspect().waiting_requests)
    await producer.close()
    with pytest.raises(ClientClosed):
        await asking


async def test_closing_ends_a_request_that_still_asks_where_its_topic_is() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()
    async with scripted("a") as (producer, (broker,)):
        broker.deaf, routes = True, producer.inspect().instance.routes
        publish_queues = routes.publish_queues

        async def slowly(topic: str) -> tuple[MessageQueue, ...]:
            queues = await publish_queues(topic)
            asked.set()
            await answered.wait()
            return queues

        routes.publish_queues = slowly  # type: ignore[method-assign]
        asking = asyncio.create_task(producer.request(Message("t", b"x"), 60_000))
        await asked.wait()
        await producer.close()
        answered.set()
        with pytest.raises(ClientClosed):
            async with asyncio.timeout(10):
                await asking


async def test_closing_ends_a_request_that_no_broker_has_been_told_of() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.deaf = True
        asking = asyncio.create_task(producer.request(Message("t", b"x"), 60_000))
        await until(lambda: broker.heartbeats)
        await producer.close()
        with pytest.raises(ClientClosed):
            await asking
        assert broker.runs == []


async def test_a_request_is_not_sent_where_no_reply_could_come_back() -> None:
    async with scripted("a") as (producer, (broker,)):
        broker.deaf = True
        with pytest.raises(RequestTimeout, match="was not sent") as caught:
            await producer.request(Message("t", b"x"), 200)
        assert caught.value.definite
        assert broker.runs == []


async def test_a_reply_finds_its_way_where_the_client_knows_only_one_of_the_brokers(tmp_path: Path) -> None:
    site = Site(tmp_path, namesrv_reconnect_ms=50)
    await site.namesrv.start()
    try:
        for name in ("broker-a", "broker-b"):
            await site.start_broker(name)
        site.brokers["broker-a"].domain.tables.topics.update(TopicConfig("questions", 4, 4))
        async with site.producer() as producer, site.producer() as replier:
            consumer = PushConsumer("answerers", namesrv=site.namesrv.address, consume_from=ConsumeFrom.FIRST_OFFSET)

            async def answer(message: ReceivedMessage) -> None:
                await replier.send(reply_to(message, message.body[::-1]))

            consumer.subscribe("questions", answer)
            async with consumer:
                asking = (producer.request(Message("questions", b"%d0" % n), 20_000) for n in range(1, 30))
                replies = await asyncio.gather(*asking)
            assert [int(reply.body) for reply in replies] == [int(str(n)[::-1]) for n in range(1, 30)]
            assert producer.inspect().instance.routes.addresses(masters_only=True) == {
                dialled(site.brokers["broker-a"])
            }
            assert (
                len(await bodies_at(site, "DefaultCluster_REPLY_TOPIC")) > 29
            )  # those refused by broker-b are kept there
    finally:
        await site.close()


async def test_bad_requests_fail_at_once(site: Servers) -> None:
    async with site.producer() as producer:
        with pytest.raises(InvalidName):
            await producer.request(Message("no such topic!", b"x"), 1000)
        with pytest.raises(DejamqError, match="more than 0"):
            await producer.request(Message("questions", b"x"), 0)
        with pytest.raises(TypeError, match="sends Messages, not bytes"):
            await producer.request(b"x", 1000)  # type: ignore[arg-type]  # what a program may do


async def test_a_message_that_is_no_request_has_no_reply(site: Servers) -> None:
    seen: list[ReceivedMessage] = []
    consumer = site.consumer("late", consume_from=ConsumeFrom.FIRST_OFFSET)

    async def keep(message: ReceivedMessage) -> None:
        seen.append(message)

    consumer.subscribe("questions", keep)
    async with consumer:
        await until(lambda: seen)
    with pytest.raises(DejamqError, match="is no request") as caught:
        reply_to(seen[0], b"x")
    assert caught.value.code == Code.CREATE_REPLY_MESSAGE_EXCEPTION
