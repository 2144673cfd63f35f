"""How a group's progress reaches its brokers, and what becomes of it when it cannot be right."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

from broker_wire import Wire
from consumer_cluster import SLOW, Servers, servers, until
from dejamq import Message, MessageQueue, PushConsumer, ReceivedMessage
from dejamq.receiving.statistics import TopicStatistics

SAME: dict[str, Any] = {"sharding_key": "same"}


def consuming(here: Servers, seen: list[str], **settings: Any) -> PushConsumer:
    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    consumer = here.consumer(**settings)
    consumer.subscribe("orders", handler)
    return consumer


def commits(here: Servers, topic: str = "orders") -> list[tuple[str, int]]:
    """What the broker took, in order: how it came, and the offset."""
    return [(line["by"], line["new"]) for line in here.server_lines("OFF_SET") if line["topic"] == topic]


async def test_a_pull_tells_the_broker_of_progress_long_before_the_timer_does(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        await producer.send(Message("orders", b"0", **SAME))
        async with consuming(here, seen, **SLOW):
            await until(lambda: seen == ["0"])
            await producer.send(Message("orders", b"1", **SAME))
            await until(lambda: ("piggyback", 1) in commits(here))


async def test_statistics_tell_how_far_a_consumer_is_behind_and_what_it_did(tmp_path: Path) -> None:
    go_on, seen = asyncio.Event(), list[str]()

    async def handler(message: ReceivedMessage) -> None:
        await go_on.wait()
        seen.append(message.body.decode())

    async with servers(tmp_path) as here, here.producer() as producer:
        for number in range(10):
            await producer.send(Message("orders", b"%d" % number, **SAME))
        consumer = here.consumer(pull_batch_size=4, pull_threshold_for_queue=4)
        consumer.subscribe("orders", handler)
        consumer.add_filter(lambda message: message.body != b"9")

        def orders() -> TopicStatistics | None:
            return consumer.statistics().topics.get("orders")

        async with consumer:
            await until(lambda: (found := orders()) and found.lag == 10)
            go_on.set()
            await until(lambda: len(seen) == 9 and (found := orders()) and found.lag == 0 and found.consume_ok_tps)
            found = orders()
            assert found is not None
            assert (found.pull_rt_ms > 0, found.consume_failed_msgs) == (True, 0)
            assert set(consumer.statistics().queues) >= set(consumer.assignment)


async def test_commits_of_the_timer_may_be_acknowledged(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        await producer.send(Message("orders", b"0", **SAME))
        async with consuming(here, seen, acknowledge_commits=True, broker_suspend_max_time_ms=60_000):
            await until(lambda: ("sync", 1) in commits(here))
            assert {by for by, _ in commits(here)} <= {"sync", "piggyback"}  # none by the timer that nobody answers
            await here.stop_broker()
            await until(lambda: timer_outcomes(here) & {"failed", "indefinite"})
            await here.start_broker()
            await here.send("after")
            await until(lambda: "after" in seen)


def timer_outcomes(here: Servers) -> set[str]:
    return {line.get("outcome", "sent") for line in here.lines("PERSIST") if line["reason"] == "timer"}


async def test_an_offset_behind_the_end_of_its_queue_is_corrected_and_consumption_goes_on(tmp_path: Path) -> None:
    seen: list[str] = []
    async with servers(tmp_path) as here, here.producer() as producer:
        await producer.send(Message("orders", b"-"))
        first = MessageQueue("orders", (await producer.publish_queues("orders"))[0].broker_name, 0)
        end = (await producer.send(Message("orders", b"0"), queue=first)).queue_offset + 1
        async with consuming(here, seen):
            await until(lambda: "0" in seen)
        async with Wire(here.address) as wire:
            await wire.commit("g", "orders", 1000)
            async with consuming(here, seen) as again:
                await until(lambda: illegal(here, "PQ_DROP"))
                await until(lambda: first in again.assignment)
                await producer.send(Message("orders", b"1"), queue=first)
                await until(lambda: "1" in seen)
            assert await wire.committed("g", "orders") == end + 1
        assert [line["queue_id"] for line in illegal(here, "PQ_DROP")] == [0]
        assert [line["value"] for line in illegal(here, "PERSIST")] == [end]
    assert sorted(seen) == ["-", "0", "1"]


async def test_after_a_correction_no_handler_of_before_moves_the_offset(tmp_path: Path) -> None:
    """RocketMQ freezes the offset; here the old ownership has ended, with all its results."""
    entered, go_on, seen = asyncio.Event(), asyncio.Event(), list[str]()

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        if seen[-1] == "4":
            entered.set()
            await go_on.wait()

    async with servers(tmp_path) as here:
        consumer = here.consumer()
        consumer.subscribe("orders", handler)
        async with here.producer() as producer, consumer:
            queue = (await producer.send(Message("orders", b"0", **SAME))).queue
            for number in range(1, 5):
                await producer.send(Message("orders", b"%d" % number), queue=queue)
            await entered.wait()
            await here.stop_broker()
            shutil.rmtree(tmp_path / "store")
            await here.start_broker()
            await producer.send(Message("orders", b"new 0", **SAME))
            await until(lambda: illegal(here, "PERSIST"))
            await until(lambda: queue in consumer.assignment)
            go_on.set()
            await until(lambda: any(line.get("pq_dropped") for line in here.lines("RESULT")))
            await producer.send(Message("orders", b"new 1"), queue=queue)
            await until(lambda: "new 1" in seen)
        (corrected,) = illegal(here, "PERSIST")
        assert corrected["value"] == 1
        await until(lambda: taken_by_the_last_broker(here, queue)[-1:] == [2])
        values = taken_by_the_last_broker(here, queue)
        assert max(values[values.index(1) :]) == 2


def taken_by_the_last_broker(here: Servers, queue: MessageQueue) -> list[int]:
    """The offsets that the broker took since its last start, in order."""
    place = queue.topic, queue.queue_id
    told = [line for line in here.server_lines("OFF_SET") if (line["topic"], line["queue_id"]) == place]
    told.sort(key=lambda line: int(line["mono_us"]))  # the journals of two starts come in the order of their names
    return [line["new"] for line in told if line["boot_id"] == told[-1]["boot_id"]]


def illegal(here: Servers, event: str) -> list[dict[str, Any]]:
    return [line for line in here.lines(event) if line["reason"] == "illegal"]
