"""Stores with messages that wait for their time: a real RocketMQ goes on with ours, and ours with a real one's."""

import asyncio
import time
from pathlib import Path

import numpy as np
import pytest
from dejamq import ConsumeFrom, LitePullConsumer, Message, Producer
from dejamq_lab.machines.rocketmq import RocketMQ
from dejamq_proto.loose_json import loads_loose
from dejamq_proto.remoting import requests as r
from java_clients import jars_of
from remoting_wire import a_send, remoting
from test_pop_store import SETTINGS, ours

pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(400)]
RESTART_S = 45
"""A real RocketMQ takes so long to be there at most, on a machine with other work."""


def stored(store: Path, topic: str) -> int:
    """Messages in the queues of a topic, by their files."""
    files = sorted((store / "consumequeue" / topic).glob("*/*"))
    return sum(int((np.fromfile(path, ">i8,>i4,>i8")["f1"] > 0).sum()) for path in files)


async def delivered(namesrv: str, topic: str, count: int) -> list[bytes]:
    """Bodies of a topic, which has so many messages or gets them, and of those that come soon after."""
    consumer = LitePullConsumer("reader", namesrv=namesrv, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(topic)
    async with consumer:
        bodies: list[bytes] = []
        async with asyncio.timeout(120):
            while len(bodies) < count:
                bodies += [message.body for message in await consumer.poll(timeout_ms=500)]
        return bodies + [message.body for message in await consumer.poll(timeout_ms=2_500)]


async def address_of(namesrv: str) -> str:
    """Where the broker of this name server listens, once it is registered."""
    async with remoting(namesrv) as client, asyncio.timeout(60):
        while True:
            answer = await client.ask(r.GET_CLUSTER_INFO)
            for broker in loads_loose(answer.body.decode())["brokerAddrTable"].values():
                return next(iter(broker["brokerAddrs"].values()))  # type: ignore[no-any-return]
            await asyncio.sleep(0.2)


async def test_a_real_rocketmq_delivers_what_waits_in_our_store_and_nothing_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with ours(store) as namesrv, Producer("p", namesrv=namesrv) as producer:
        for number in range(3):
            await producer.send(Message("orders", b"done %d" % number, delay_ms=100))
        due_ms = round((time.time() + RESTART_S) * 1000)
        for number in range(20):
            await producer.send(Message("orders", b"waits %d" % number, deliver_at_ms=due_ms + 100 * number))
        await producer.send(Message("orders", b"far", delay_ms=250_000_000))
        async with asyncio.timeout(60):
            while await asyncio.to_thread(stored, store, "orders") < 3:
                await asyncio.sleep(0.1)
    with RocketMQ(jars_of("5.3.3"), store, tmp_path / "work", SETTINGS) as real:
        async with asyncio.timeout(180):
            while await asyncio.to_thread(stored, store, "orders") < 23:
                await asyncio.sleep(0.5)
        await asyncio.sleep(3)
        assert await asyncio.to_thread(stored, store, "orders") == 23
        await asyncio.to_thread(real.stop)
    async with ours(store) as namesrv:
        bodies = await delivered(namesrv, "orders", 23)
        assert sorted(bodies) == sorted(
            [b"done %d" % number for number in range(3)] + [b"waits %d" % number for number in range(20)]
        )


async def test_what_waits_in_a_real_rocketmqs_store_comes_here_and_what_it_recalled_does_not(tmp_path: Path) -> None:
    store = tmp_path / "store"
    settings = SETTINGS | {"recallMessageEnable": "true"}
    with RocketMQ(jars_of("5.3.3"), store, tmp_path / "work", settings) as real:
        async with remoting(await address_of(real.namesrv)) as client:

            async def send(number: int, **properties: object) -> dict[str, str]:
                texts = {"UNIQ_KEY": f"K{number}"} | properties
                text = "".join(f"{name}\x01{value}\x02" for name, value in texts.items())
                answer = await client.ask(r.SEND_MESSAGE_V2, b"%d" % number, **a_send("orders", i=text))
                assert answer.code == 0, answer.remark
                return answer.ext

            await send(0)
            await send(1, TIMER_DELAY_MS=100)
            due_ms = round((time.time() + 30) * 1000)
            recalled = await send(2, TIMER_DELIVER_MS=due_ms)
            for number in range(3, 10):
                await send(number, TIMER_DELIVER_MS=due_ms)
            fields = {"topic": "orders", "recallHandle": recalled["recallHandle"], "producerGroup": "pg"}
            assert (await client.ask(r.RECALL_MESSAGE, **fields)).code == 0
            async with asyncio.timeout(60):
                while await asyncio.to_thread(stored, store, "orders") < 2:
                    await asyncio.sleep(0.1)
        await asyncio.to_thread(real.stop)
    async with ours(store) as namesrv:
        bodies = await delivered(namesrv, "orders", 9)
        assert sorted(bodies) == [b"0", b"1", *(b"%d" % number for number in range(3, 10))]
