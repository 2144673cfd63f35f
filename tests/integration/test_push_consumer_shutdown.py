"""How a consumer ends: drained, in RocketMQ's way, or in a hurry; and what it holds while its handlers are slow."""

import asyncio
import gc
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import ConfigError, Message, PushConsumer, ReceivedMessage
from dejamq.net.broker import BrokerLink
from dejamq.receiving.batch import PullBatch

SAME: dict[str, Any] = {"sharding_key": "same"}
PATIENT: dict[str, Any] = {"await_termination_ms": 600_000, "broker_suspend_max_time_ms": 600_000}


class Stuck:
    """A handler that ends with every message but one, and waits there."""

    def __init__(self, body: str) -> None:
        self.body, self.entered, self.seen = body, asyncio.Event(), list[str]()

    async def handle(self, message: ReceivedMessage) -> None:
        self.seen.append(message.body.decode())
        if self.seen[-1] == self.body:
            self.entered.set()
            await asyncio.Event().wait()


def journal(here: Servers, *events: str) -> list[tuple[str, Any]]:
    """The end of the story of the queues of orders, as the consumer told it."""
    told = []
    for line in here.lines():
        if line["event"] in events and line.get("topic") == "orders" and line.get("reason") != "piggyback":
            told.append((line["event"], line.get("value", line.get("status", line.get("reason")))))
    return told


def piggybacks(here: Servers) -> list[bool]:
    """Whether the second pull has left, and whether offsets that pulls took along have arrived.

    One that is overtaken by a later commit would put the group back, as with RocketMQ.
    """
    sent = [line for line in here.lines("PERSIST") if line.get("reason") == "piggyback"]
    came = [line for line in here.server_lines("OFF_SET") if line["by"] == "piggyback"]
    return [bool(sent), len(sent) == len(came)]


async def test_rocketmqs_shutdown_waits_for_no_handler_and_its_message_comes_again(tmp_path: Path) -> None:
    """Cause O10: what was done is known to the broker, what ran is not."""
    stuck, again = Stuck("2"), list[str]()
    async with servers(tmp_path) as here, here.producer() as producer:
        for body in (b"0", b"1", b"2"):
            queue = (await producer.send(Message("orders", body, **SAME))).queue
        consumer = here.consumer(shutdown_mode="rocketmq", persist_consumer_offset_interval_ms=600_000, **PATIENT)
        consumer.subscribe("orders", stuck.handle)
        await consumer.start()
        await stuck.entered.wait()
        await until(lambda: len(here.lines("RESULT")) == 2)
        await until(lambda: piggybacks(here) == [True, True])
        await consumer.close()
        await until(lambda: any(line["new"] == 2 for line in here.server_lines("OFF_SET")))
        story = [line for line in here.lines() if line.get("queue_id") == queue.queue_id and line["topic"] == "orders"]
        end = [(line["event"], line.get("value", line.get("pq_dropped"))) for line in story[-3:]]
        assert end == [("PERSIST", 2), ("PQ_DROP", None), ("RESULT", True)]
        assert story[-1]["status"] == "cancelled"

        async def handler(message: ReceivedMessage) -> None:
            again.append(message.body.decode())

        following = here.consumer()
        following.subscribe("orders", handler)
        async with following:
            await until(lambda: again)
    assert again == ["2"]


@pytest.mark.parametrize(("mode", "order"), [("rocketmq", ["UNLOCK", "PERSIST"]), ("drain", ["PERSIST", "UNLOCK"])])
async def test_the_lock_of_a_queue_is_given_back_before_or_after_its_progress(
    tmp_path: Path, mode: str, order: list[str]
) -> None:
    """RocketMQ gives it back before (cause O11)."""
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(ordered=True, shutdown_mode=mode, persist_consumer_offset_interval_ms=600_000)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: seen)
            owner = [line["queue_id"] for line in here.lines("DELIVER")]
        told = [line for line in here.lines() if line.get("queue_id") in owner and line.get("topic") == "orders"]
        ending = [line["event"] for line in told if line["event"] == "UNLOCK" or line.get("reason") == "shutdown"]
        assert [event for event in ending if event in order] == order


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("plain", [False, True])
async def test_a_handler_may_close_its_consumer_which_then_ends_after_the_handler(
    tmp_path: Path, ordered: bool, plain: bool
) -> None:
    seen: list[str] = []

    async def handler(message: ReceivedMessage) -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(consumer.close())  # also from a task of the handler's
            await consumer.close()
        seen.append(message.body.decode())

    def returning(message: ReceivedMessage) -> Any:
        return handler(message)

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(ordered=ordered, **PATIENT)
        consumer.subscribe("orders", returning if plain else handler)
        async with asyncio.timeout(20):
            await consumer.run_until_stopped(signals=())
        assert seen == ["x"]
        assert [line["status"] for line in here.lines("RESULT")] == ["success"]
        await until(lambda: any(line["new"] == 1 for line in here.server_lines("OFF_SET")))


async def test_a_second_signal_leaves_at_once_though_no_broker_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seen = asyncio.Event(), list[str]()

    async def silence(link: BrokerLink, *queue: object, **more: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())

    async with servers(tmp_path) as here:
        await here.send("x")
        consumer = here.consumer(**PATIENT, persist_consumer_offset_interval_ms=600_000)
        consumer.subscribe("orders", handler)
        serving = asyncio.ensure_future(consumer.run_until_stopped())
        await until(lambda: seen)
        monkeypatch.setattr(BrokerLink, "update_offset", silence)
        monkeypatch.setattr(BrokerLink, "unregister", silence)
        os.kill(os.getpid(), signal.SIGTERM)
        await asked.wait()
        await asyncio.sleep(0)
        assert not serving.done()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(10):
            await serving
        assert consumer.closed


@pytest.fixture
def only_new_objects() -> None:
    """The collector shows objects of this test alone: those of thousands of tests before it take seconds to walk."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("only_new_objects")
@pytest.mark.parametrize("packed", [False, True])
async def test_a_slow_handler_and_a_full_topic_stay_within_the_limits_of_memory(tmp_path: Path, packed: bool) -> None:
    """What is held is at most ``max_cached_bytes``, and a pull above it."""
    size, count, limit, pull = 16_384, 1_500, 1 << 20, 1 << 18  # 24 MB in the topic
    body = bytes(size) if packed else random.Random(17).randbytes(size)
    go_on, seen = asyncio.Event(), 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal seen
        await go_on.wait()
        assert len(message.body) == size
        seen += 1

    def held() -> int:
        return sum(queue.cached_msg_bytes for queue in consumer.statistics().queues.values())

    def within() -> bool:
        """Bodies that wait, and the runs that they came in with what was unpacked of them."""
        runs = [one for one in gc.get_objects() if isinstance(one, PullBatch)]
        in_memory = sum(run.held_bytes for run in runs)
        return held() <= most and in_memory <= 2 * most

    async with servers(tmp_path) as here:
        async with here.producer() as producer:
            await asyncio.gather(*(producer.send(Message("orders", body)) for _ in range(count)))
        consumer = here.consumer(max_cached_bytes=limit, pull_batch_size_in_bytes=pull, pull_batch_size=pull // size)
        consumer.subscribe("orders", handler)
        most = limit + pull
        assert 4 * most < size * count
        async with consumer:
            await until(lambda: held() > limit)
            for _ in range(20):
                await asyncio.sleep(0.01)
                assert within()
            go_on.set()
            while seen < count:
                await asyncio.sleep(0.01)
                assert within()


async def test_what_fails_while_it_closes_is_given_back_and_comes_again_with_its_try_counted(tmp_path: Path) -> None:
    entered, go_on, again = asyncio.Event(), asyncio.Event(), list[tuple[str, int]]()

    async def failing(message: ReceivedMessage) -> None:
        entered.set()
        await go_on.wait()
        raise ValueError("too late for anything else")

    async def following(message: ReceivedMessage) -> None:
        again.append((message.body.decode(), message.reconsume_times))

    async with servers(tmp_path, schedule_poll_interval_ms=20) as here:
        await here.send("x")
        consumer = here.consumer(**PATIENT)
        consumer.subscribe("orders", failing)
        await consumer.start()
        await entered.wait()
        closing = asyncio.ensure_future(consumer.close())
        await until(lambda: [line["state"] for line in here.lines("STATE")][-1] == "closing")
        go_on.set()
        await closing
        assert [line["outcome"] for line in here.lines("SENDBACK")] == ["ok"]
        next_one = here.consumer()
        next_one.subscribe("orders", following)
        async with next_one:
            await until(lambda: again)
    assert again == [("x", 1)]


def test_how_to_stop_is_checked_at_once() -> None:
    with pytest.raises(ConfigError, match="shutdown_mode"):
        PushConsumer("g", shutdown_mode="quickly")
    with pytest.raises(ConfigError, match="graceful_handover"):
        PushConsumer("g", shutdown_mode="rocketmq", graceful_handover=True)
