"""Clients that are closed when the event loop that they were started in has ended, as that of an ``asyncio.run``."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import servers, until
from dejamq import (
    Admin,
    LitePullConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)

NOBODY = "127.0.0.1:1"
AT_ONCE_S = 10.0
"""Far less than the time of any call that a close may wait for."""


async def handle(message: ReceivedMessage) -> None:
    pass


async def check(message: ReceivedMessage) -> TransactionState:
    return TransactionState.COMMIT


def push(namesrv: str) -> PushConsumer:
    consumer = PushConsumer("g", namesrv=namesrv)
    consumer.subscribe("orders", handle)
    return consumer


def lite(namesrv: str) -> LitePullConsumer:
    consumer = LitePullConsumer("g", namesrv=namesrv)
    consumer.subscribe("orders")
    return consumer


def simple(namesrv: str) -> SimpleConsumer:
    consumer = SimpleConsumer("g", namesrv=namesrv)
    consumer.subscribe("orders")
    return consumer


CLIENTS: dict[str, Callable[[str], Any]] = {
    "push": push,
    "lite": lite,
    "simple": simple,
    "producer": lambda namesrv: Producer("p", namesrv=namesrv),
    "transactions": lambda namesrv: TransactionProducer("p", namesrv=namesrv, checker=check),
    "admin": lambda namesrv: Admin(namesrv=namesrv),
}


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_of_an_ended_loop_closes_at_once_in_another(kind: str, tmp_path: Path) -> None:
    made: list[Any] = []

    async def use() -> None:
        async with servers(tmp_path) as cluster:
            await cluster.send("first")
            client = CLIENTS[kind](cluster.namesrv.address)
            made.append(client)
            await client.start()
            if kind == "push":
                await until(lambda: client.inspect().rebalancer.assignment.queues())

    async def close() -> None:
        async with asyncio.timeout(AT_ONCE_S):
            await made[0].close()
            await made[0].close()

    asyncio.run(use())
    asyncio.run(close())
    assert made[0].closed


def test_what_a_producer_of_an_ended_loop_has_not_sent_is_told_when_it_is_closed() -> None:
    program = f"""
import asyncio
from dejamq import ClientClosed, Message, Producer
async def use():
    global producer
    producer = Producer("p", namesrv="{NOBODY}")
    await producer.start()
    for _ in range(3):
        producer.submit(Message("t", b"x"))
    await asyncio.sleep(0)
async def close():
    await producer.close()
    try:
        producer.submit(Message("t", b"x"))
    except ClientClosed:
        print("closed")
loop = asyncio.new_event_loop()
loop.run_until_complete(use())
loop.close()
asyncio.run(close())
"""
    ran = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "closed\n")
    assert ran.stderr.count("ResourceWarning: producer 'p' was not closed: 3 messages") == 1
