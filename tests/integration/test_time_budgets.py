"""Every call keeps the time that a program gave it, also where a server takes connections and never says a word.

Other time-outs are set to ten minutes: a call that ends at all has kept its own.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dejamq.sync
import pytest
from consumer_cluster import servers, until
from dejamq import LitePullConsumer, Message, TransactionProducer, TransactionState
from dejamq.net.broker import BrokerLink
from dejamq_proto.codes import DejamqError
from scripted_broker import never_answer, scripted

FAR_MS = 600_000
FAR: dict[str, Any] = {"mq_client_api_timeout_ms": FAR_MS}
AT_ONCE_MS = 50
MESSAGE = Message("t", b"x")


def commit(message: object) -> TransactionState:
    return TransactionState.COMMIT


@pytest.fixture
def silent() -> Iterator[str]:
    """Takes connections, and reads and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=50)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


Call = Callable[[Any], Awaitable[object]]
CALLS: dict[str, Call] = {
    "send": lambda producer: producer.send(MESSAGE, timeout_ms=AT_ONCE_MS),
    "send_batch": lambda producer: producer.send_batch([MESSAGE], timeout_ms=AT_ONCE_MS),
    "submit": lambda producer: producer.submit(MESSAGE, timeout_ms=AT_ONCE_MS),
    "request": lambda producer: producer.request(MESSAGE, AT_ONCE_MS),
    "send_in_transaction": lambda producer: producer.send_in_transaction(MESSAGE, commit, timeout_ms=AT_ONCE_MS),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_send_ends_in_its_own_time_although_the_name_server_is_silent(call: Call, silent: str) -> None:
    async with TransactionProducer("p", checker=commit, namesrv=silent, **FAR) as producer:
        with pytest.raises(TimeoutError) as caught:
            await call(producer)
    assert isinstance(caught.value, DejamqError)
    assert caught.value.definite


@pytest.mark.parametrize("name", ["send", "send_batch", "submit"])
async def test_a_send_ends_in_its_own_time_although_the_broker_is_silent(name: str) -> None:
    async with scripted("a", **FAR) as (producer, (broker,)):
        await producer.send(MESSAGE)  # learns the route: the time is the broker's alone
        broker.script.append(never_answer)
        async with asyncio.timeout(60):
            with pytest.raises(TimeoutError) as caught:
                await CALLS[name](producer)
    assert isinstance(caught.value, DejamqError)
    assert not caught.value.definite


async def test_a_producer_closes_in_its_own_time_although_the_broker_is_silent() -> None:
    async with scripted("a", **FAR) as (producer, (broker,)):
        await producer.send(MESSAGE)
        await until(lambda: broker.heartbeats)
        broker.Unregister = never  # type: ignore[method-assign]  # the silence is the test
        async with asyncio.timeout(60):
            await producer.close(timeout_ms=AT_ONCE_MS)


async def test_a_blocking_producer_closes_in_its_own_time_although_nothing_could_be_sent(silent: str) -> None:
    producer = dejamq.sync.Producer("p", namesrv=silent, send_msg_timeout_ms=FAR_MS, max_pending_bytes=100, **FAR)
    await asyncio.to_thread(producer.start)
    futures = [producer.submit(MESSAGE)]
    async with asyncio.timeout(60):
        await asyncio.to_thread(producer.close, AT_ONCE_MS)
    assert all(isinstance(future.exception(10), DejamqError) for future in futures)


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("kind", ["push", "lite"])
async def test_a_consumer_closes_in_its_own_time_although_the_broker_is_silent(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with servers(tmp_path) as site:
        await site.send("a", "b")
        seen: list[object] = []
        far: dict[str, Any] = FAR | {"consumer_progress_timeout_ms": FAR_MS}
        push, lite = site.consumer(**far), LitePullConsumer("lite", namesrv=site.namesrv.address, **far)
        push.subscribe("orders", seen.append)
        lite.subscribe("orders")
        consumer = push if kind == "push" else lite
        await consumer.start()
        await consumer.wait_assigned()
        for name in ("unregister", "update_offset"):
            monkeypatch.setattr(BrokerLink, name, never)
        async with asyncio.timeout(60):
            await consumer.close(timeout_ms=AT_ONCE_MS)


async def test_waiting_for_queues_and_messages_ends_in_its_own_time(tmp_path: Path) -> None:
    async with servers(tmp_path) as site:
        consumer = LitePullConsumer("lite", namesrv=site.namesrv.address, **FAR)
        consumer.subscribe("nobody-has-this")
        async with asyncio.timeout(60), consumer:
            with pytest.raises(TimeoutError):
                await consumer.wait_assigned(timeout_ms=AT_ONCE_MS)
            assert await consumer.poll(timeout_ms=AT_ONCE_MS) == []
