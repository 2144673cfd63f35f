"""Cancelling at each await: what left is not called back, nobody else loses a message, the producer stays usable."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from dejamq import BrokerUnavailable, Message, MessageQueue, Producer
from dejamq_proto.wire.messages import SendRun, SendRunResult
from scripted_broker import ScriptedBroker, accepted, answer_after, break_stream, scripted

pytestmark = pytest.mark.usefixtures("transport")

ROOM = 20_000
Sending = Callable[[Producer, bytes], Coroutine[Any, Any, object]]


def message(body: bytes) -> Message:
    return Message("t", body + b" " * 500)


async def one(producer: Producer, body: bytes) -> object:
    return await producer.send(message(body))


async def one_by_key(producer: Producer, body: bytes) -> object:
    return await producer.send(message(body).replace(sharding_key="k"))


async def one_to_a_queue(producer: Producer, body: bytes) -> object:
    return await producer.send(message(body), queue=MessageQueue("t", "a", 0))


async def a_batch(producer: Producer, body: bytes) -> object:
    return await producer.send_batch([message(body + b"/%d" % n) for n in range(20)])


async def flushed(producer: Producer, body: bytes) -> object:
    producer.submit(message(body)).add_done_callback(lambda done: done.exception())
    await producer.flush()
    return None


async def after_draining(producer: Producer, body: bytes) -> object:
    await producer.drain()
    return await producer.send(message(body))


KINDS: list[Sending] = [one, one_by_key, one_to_a_queue, a_batch, flushed, after_draining]


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def numbers_of(brokers: list[ScriptedBroker]) -> set[bytes]:
    return {body.strip() for broker in brokers for body in broker.bodies}


def assert_empty(producer: Producer) -> None:
    """Nothing was counted in that was not counted out."""
    assert (producer.inspect().backlog.calls, producer.inspect().backlog.bytes) == (0, 0)


@pytest.mark.parametrize("sending", KINDS)
async def test_a_cancelled_send_takes_nobody_with_it_whenever_it_is_cancelled(sending: Sending) -> None:
    settings = {"max_pending_bytes": ROOM, "send_msg_timeout_ms": 20_000, "retry_times_when_send_failed": 20}
    async with scripted("a", "b", **settings) as (producer, brokers):
        for after in range(40):
            if after % 2:
                brokers[after % 4 // 2].script.append(break_stream)
            others = [asyncio.create_task(producer.send(message(b"other-%d-%d" % (after, n)))) for n in range(4)]
            victim = asyncio.create_task(sending(producer, b"victim-%d" % after))
            await turns(after)
            victim.cancel()
            await asyncio.wait((victim,))
            assert victim.cancelled() or isinstance(victim.exception(), BrokerUnavailable | type(None))
            results = await asyncio.gather(*others)
            assert len(results) == 4
        await producer.flush()
        expected = {b"other-%d-%d" % (after, n) for after in range(40) for n in range(4)}
        assert expected <= numbers_of(brokers)
        assert_empty(producer)


@pytest.mark.parametrize("sending", KINDS)
async def test_a_send_cancelled_before_the_route_is_known_does_not_stop_the_others(sending: Sending) -> None:
    for after in range(8):
        async with scripted("a", "b", send_msg_timeout_ms=20_000) as (producer, brokers):
            victim = asyncio.create_task(sending(producer, b"victim"))
            other = asyncio.create_task(producer.send(message(b"other")))
            await turns(after)
            victim.cancel()
            await asyncio.wait((victim,))
            await other
            await producer.flush()
            assert b"other" in numbers_of(brokers)
            assert_empty(producer)


@pytest.mark.parametrize("sending", [one, a_batch])
async def test_a_send_cancelled_while_it_waits_for_room_was_never_there(sending: Sending) -> None:
    gate = asyncio.Event()
    async with scripted("a", max_pending_bytes=ROOM, send_msg_timeout_ms=20_000) as (producer, (broker,)):
        broker.script.extend([answer_after(gate)] * 2)
        first = [producer.submit(message(b"first-%d" % n)) for n in range(ROOM // 1_100)]
        waiting = [asyncio.create_task(sending(producer, b"victim")) for _ in range(3)]
        staying = asyncio.create_task(producer.send_batch([message(b"staying")] * 10))
        await turns(5)
        assert not any(task.done() for task in (*waiting, staying))
        for task in waiting:
            task.cancel()
        gate.set()
        await asyncio.gather(*first, staying)
        await producer.flush()
        assert not any(body.startswith(b"victim") for body in numbers_of([broker]))
        assert_empty(producer)


async def test_what_has_left_is_not_called_back() -> None:
    gate = asyncio.Event()
    stored: list[int] = []

    async def answer(run: SendRun) -> SendRunResult:
        await gate.wait()
        stored.append(len(run.sizes))
        return accepted(run)

    async with scripted("a") as (producer, (broker,)):
        broker.script.append(answer)
        sending = asyncio.create_task(producer.send(Message("t", b"gone")))
        async with asyncio.timeout(10):
            while not broker.runs:
                await asyncio.sleep(0.002)
        sending.cancel()
        gate.set()
        await producer.flush()
        assert stored == [1]
        assert_empty(producer)


async def test_a_message_that_has_not_left_when_it_is_cancelled_never_leaves() -> None:
    gate = asyncio.Event()
    async with scripted("a", max_runs_in_flight=1) as (producer, (broker,)):
        broker.script.append(answer_after(gate))
        first = producer.submit(Message("t", b"first"))
        async with asyncio.timeout(10):
            while not broker.runs:
                await asyncio.sleep(0.002)
        waiting = [producer.submit(Message("t", b"%d" % n)) for n in range(6)]
        for future in waiting[::2]:
            future.cancel()
        gate.set()
        await asyncio.gather(first, *waiting[1::2])
        await producer.flush()
        assert sorted(broker.bodies) == [b"1", b"3", b"5", b"first"]
        assert_empty(producer)


async def test_a_request_cancelled_at_any_moment_leaves_nothing_behind() -> None:
    async with scripted("a", "b") as (producer, brokers):
        for after in range(30):
            asking = asyncio.create_task(producer.request(Message("t", b"%d" % after), 20_000))
            await turns(after)
            asking.cancel()
            await asyncio.wait((asking,))
            assert not producer.inspect().waiting_requests
        await producer.send(message(b"after"))
        await producer.flush()
        assert b"after" in numbers_of(brokers)
        assert_empty(producer)


async def test_closing_that_is_cancelled_at_any_moment_can_be_done_again() -> None:
    for after in range(25):
        async with scripted("a") as (producer, (broker,)):
            futures = [producer.submit(Message("t", b"%d" % n)) for n in range(3)]
            closing = asyncio.create_task(producer.close())
            await turns(after)
            closing.cancel()
            await asyncio.wait((closing,))
            await producer.close()
            assert all(future.done() for future in futures)
            stored = {b"%d" % n for n, future in enumerate(futures) if not future.exception()}
            assert stored <= set(broker.bodies)
