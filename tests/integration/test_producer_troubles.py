"""Brokers and name servers that go away, come back, pause or change: the producer goes on by itself.

What was acknowledged is stored; what failed says whether it surely is not.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from dejamq import (
    BrokerUnavailable,
    DejamqError,
    Message,
    MessageQueue,
    Producer,
    RouteNotFound,
    SendTimeout,
)
from dejamq_broker.tables.topics import TopicConfig
from producer_site import Site, bodies_at
from producer_traffic import Traffic, assert_truthful, until
from relay import Relay, quick_keepalive
from scripted_broker import ScriptedNamesrv, answer_after, break_stream, scripted


@pytest.fixture
async def site(tmp_path: Path, transport: str) -> AsyncIterator[Site]:
    site = Site(tmp_path, namesrv_reconnect_ms=50)
    await site.namesrv.start()
    await site.start_broker("broker-a")
    yield site
    await site.close()


async def test_a_broker_restarts_twice_under_traffic(site: Site) -> None:
    async with site.producer(send_msg_timeout_ms=2_000) as producer:
        traffic = Traffic(producer)
        await traffic.more()
        for _ in range(2):
            address = await site.stop_broker("broker-a")
            await until(lambda: traffic.failed)
            await site.start_broker("broker-a", listen=address)
            await traffic.more()
        await traffic.stop()
        assert_truthful(traffic, await bodies_at(site, "t"))


async def test_one_of_two_brokers_goes_away_and_nothing_fails(site: Site) -> None:
    await site.start_broker("broker-b")
    for broker in site.brokers.values():  # made by sending it may be at one broker for good: its route is then known
        broker.domain.tables.topics.update(TopicConfig("t", 4, 4))
    async with site.producer(send_msg_timeout_ms=10_000) as producer:
        await until_spread(producer, "t", 2)
        traffic = Traffic(producer)
        await traffic.more()
        await site.stop_broker("broker-b")
        await traffic.more(50)
        await traffic.stop()
        assert traffic.failed == {}
        assert {result.queue.broker_name for result in list(traffic.stored.values())[-20:]} == {"broker-a"}


async def until_spread(producer: Producer, topic: str, brokers: int) -> None:
    """Until the topic is at so many brokers, by sending to it."""
    async with asyncio.timeout(30):
        names: set[str] = set()
        while len(names) < brokers:
            names.add((await producer.send(Message(topic, b"make"))).queue.broker_name)


async def test_a_broker_that_comes_later_gets_its_share(site: Site) -> None:
    async with site.producer() as producer:
        await producer.send(Message("t", b"first"))
        broker = await site.start_broker("broker-b")
        broker.domain.tables.topics.update(TopicConfig("t", 4, 4))
        traffic = Traffic(producer)
        await until(lambda: any(result.queue.broker_name == "broker-b" for result in traffic.stored.values()))
        await traffic.stop()
        assert traffic.failed == {}


async def test_a_topic_that_grows_gets_messages_in_its_new_queues(site: Site) -> None:
    async with site.producer() as producer:
        await producer.send(Message("t", b"first"))
        site.brokers["broker-a"].domain.tables.topics.update(TopicConfig("t", 9, 9))
        traffic = Traffic(producer)
        await until(lambda: any(result.queue.queue_id == 8 for result in traffic.stored.values()))
        await traffic.stop()
        assert traffic.failed == {}


async def test_a_topic_that_loses_queues_gets_messages_in_those_that_are_left(site: Site) -> None:
    async with site.producer() as producer:
        await producer.send(Message("t", b"first"))
        site.brokers["broker-a"].domain.tables.topics.update(
            TopicConfig("t", 4, 2)
        )  # readers still have to empty the others
        traffic = Traffic(producer)
        await until(lambda: len(traffic.stored) >= 8 and last_queues(traffic, 8) == {0, 1})
        await traffic.stop()
        assert traffic.failed == {}
        assert_truthful(traffic, await bodies_at(site, "t"))


def last_queues(traffic: Traffic, count: int) -> set[int]:
    return {result.queue.queue_id for result in list(traffic.stored.values())[-count:]}


async def test_a_broker_that_comes_back_at_another_address_is_found_there(site: Site) -> None:
    async with site.producer(send_msg_timeout_ms=2_000) as producer:
        traffic = Traffic(producer)
        await traffic.more()
        address = await site.stop_broker("broker-a")
        holder = await asyncio.start_server(lambda _, writer: writer.close(), *address.split(":"))
        async with holder:  # so that the old address is surely another program's
            broker = await site.start_broker("broker-a")
            assert broker.address != address
            await traffic.more()
        await traffic.stop()
        assert_truthful(traffic, await bodies_at(site, "t"))


async def test_a_topic_that_may_not_be_written_any_more_is_left_alone_until_it_may(site: Site) -> None:
    async with site.producer() as producer:
        await producer.send(Message("t", b"first"))
        topics = site.brokers["broker-a"].domain.tables.topics
        topics.update(TopicConfig("t", 4, 4, perm=4))
        traffic = Traffic(producer)
        await until(lambda: traffic.failed)
        failure = next(iter(traffic.failed.values()))
        assert isinstance(failure, RouteNotFound)
        assert failure.definite
        topics.update(TopicConfig("t", 4, 4, perm=6))
        await traffic.more()
        await traffic.stop()


async def test_without_the_name_server_known_topics_go_on_and_new_ones_say_why_not(site: Site) -> None:
    async with site.producer() as producer:
        traffic = Traffic(producer)
        await traffic.more()
        await site.stop_namesrv()
        await traffic.more(50)
        with pytest.raises(BrokerUnavailable, match="no dejamq name server answers") as caught:
            await producer.send(Message("new", b"x"))
        assert caught.value.definite
        await site.start_namesrv()
        async with asyncio.timeout(15):
            while True:
                try:
                    await producer.send(Message("new", b"x"))
                    break
                except DejamqError:
                    await asyncio.sleep(0.02)
        await traffic.more()
        await traffic.stop()
        assert traffic.failed == {}
        assert_truthful(traffic, await bodies_at(site, "t"))


async def test_keys_keep_their_order_over_a_restart_of_the_broker(site: Site) -> None:
    async with site.producer(send_msg_timeout_ms=2_000) as producer:
        await producer.send(Message("t", b"make"))
        sent: dict[str, list[int]] = {"k1": [], "k2": [], "k3": []}

        async def send_all(key: str) -> None:
            number = 0
            while number < 60:
                try:
                    await producer.send(Message("t", f"{key}:{number}".encode(), sharding_key=key))
                except DejamqError:
                    await asyncio.sleep(0.01)  # the same message object would be sent twice; a new one is as good
                    continue
                sent[key].append(number)
                number += 1
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(send_all(key)) for key in sent]
        await until(lambda: all(len(numbers) > 10 for numbers in sent.values()))
        await site.restart_broker("broker-a")
        await asyncio.gather(*tasks)
        for key in sent:
            stored = [int(body.split(b":")[1]) for body in await bodies_at(site, "t") if body.startswith(key.encode())]
            assert stored == sorted(stored)  # an unknown outcome may be there twice, never out of order
            assert set(stored) == set(range(60))


async def test_a_paused_broker_costs_its_own_messages_their_budget_and_no_others() -> None:
    wake = asyncio.Event()
    async with scripted("a", "b") as (producer, (a, b)):
        await producer.publish_queues("t")
        a.script.append(answer_after(wake))
        stuck = [
            producer.submit(Message("t", b"%d" % n), queue=MessageQueue("t", "a", 0), timeout_ms=300) for n in range(4)
        ]
        well = [await producer.send(Message("t", b"w"), queue=MessageQueue("t", "b", 0)) for _ in range(5)]
        assert len(well) == 5
        outcomes = await asyncio.gather(*stuck, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {SendTimeout}
        assert not any(outcome.definite for outcome in outcomes if isinstance(outcome, SendTimeout))
        wake.set()
        assert (await producer.send(Message("t", b"again"), queue=MessageQueue("t", "a", 0))).queue.broker_name == "a"
        assert b.bodies == [b"w"] * 5


async def test_a_half_open_connection_costs_one_time_out_where_a_time_out_closes_it() -> None:
    async with scripted("a", close_connection_on_timeout=True) as (_, (broker,)):
        relay = Relay(broker.address)
        direct, broker.address = broker.address, await relay.start()
        namesrv = ScriptedNamesrv({"t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        async with Producer("g", namesrv=namesrv.address, close_connection_on_timeout=True) as producer:
            await producer.send(Message("t", b"before"))
            assert relay.accepted == 1
            relay.go_deaf()
            with pytest.raises(SendTimeout) as caught:
                await producer.send(Message("t", b"lost"), timeout_ms=200)
            assert not caught.value.definite
            await producer.send(Message("t", b"after"))
            assert relay.accepted == 2
            await until(lambda: len(broker.heartbeats) == 2)  # the broker hears of it again too
        assert broker.bodies == [b"before", b"after"]
        broker.address = direct
        await namesrv.close()
        await relay.close()


async def test_a_connection_that_breaks_with_every_run_is_opened_with_every_run() -> None:
    async with scripted("a") as (producer, (broker,)):
        for number in range(30):
            broker.script.append(break_stream)
            await producer.send(Message("t", b"%d" % number))
        assert broker.bodies == [b"%d" % (number // 2) for number in range(60)]


async def test_a_half_open_connection_is_found_by_its_keepalive_where_a_time_out_does_not_close_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick_keepalive(monkeypatch)
    async with scripted("a") as (_, (broker,)):
        relay = Relay(broker.address)
        direct, broker.address = broker.address, await relay.start()
        namesrv = ScriptedNamesrv({"t": [broker]})  # type: ignore[abstract]  # answers only what is asked here
        await namesrv.start()
        async with Producer("g", namesrv=namesrv.address, reconnect_interval_ms=50) as producer:
            await producer.send(Message("t", b"before"))
            relay.go_deaf()
            await producer.send(Message("t", b"after"), timeout_ms=20_000)
            assert relay.accepted == 2
        assert broker.bodies == [b"before", b"after"]
        broker.address = direct
        await namesrv.close()
        await relay.close()
