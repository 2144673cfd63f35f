"""Clients that a program leaves open: what was taken on and is not finished is told, with its number."""

import asyncio
import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import servers, until
from dejamq import ClientClosed, LitePullConsumer, Message, Producer
from dejamq_proto.journal import events
from dejamq_proto.journal.writer import open_journal
from scripted_broker import never_answer, scripted

NOBODY = "127.0.0.1:1"


@contextmanager
def told() -> Iterator[list[str]]:
    """The resource warnings of this block, those of garbage too."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield texts
        gc.collect()
    texts += [str(one.message) for one in caught if "was not closed" in str(one.message)]


async def left_open(send: Callable[[Producer], object], kept: list[Producer]) -> None:
    producer = Producer("p", namesrv=NOBODY)
    await producer.start()
    kept.append(producer)
    for _ in range(5):
        send(producer)


@pytest.mark.parametrize("name", ["submit", "send_oneway"])
def test_messages_that_are_left_when_the_loop_ends_are_told_once_with_their_number(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Producer] = []
    with told() as texts:
        asyncio.run(left_open(lambda producer: getattr(producer, name)(Message("t", b"x")), kept))
        kept.clear()
    (text,) = texts
    assert "producer 'p' was not closed: 5 messages are not known to be stored" in text
    assert caplog.text.count("client_unclosed") == 1


async def test_messages_of_a_producer_that_is_garbage_are_told() -> None:
    with told() as texts:
        kept: list[Producer] = []
        await left_open(lambda producer: producer.submit(Message("t", b"x")), kept)
        instance = kept[0]._instance
        kept.clear()
    assert len(texts) == 1
    assert instance is not None
    await instance.close()


@pytest.mark.parametrize("use", ["asyncio.run(again())", "del again"])
def test_messages_that_are_left_are_told_by_a_second_loop_and_else_at_the_end_of_the_interpreter(use: str) -> None:
    program = f"""
import asyncio
from dejamq import ClientClosed, Message, Producer
async def main():
    global producer
    producer = Producer("p", namesrv="{NOBODY}")
    await producer.start()
    for _ in range(5):
        producer.submit(Message("t", b"x"))
    await asyncio.sleep(0)
async def again():
    try:
        producer.submit(Message("t", b"x"))
    except ClientClosed:
        print("closed")
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
{use}
print("end")
"""
    ran = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr.count("ResourceWarning: producer 'p' was not closed: 5 messages") == 1
    assert ran.stdout.split() == (["end"] if use.startswith("del") else ["closed", "end"])


async def test_a_producer_that_is_closed_with_messages_left_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    with told() as texts:
        async with scripted("a") as (producer, (broker,)):
            broker.script.append(never_answer)
            future = producer.submit(Message("t", b"x"))
            await until(lambda: broker.runs)
            await producer.close(timeout_ms=50)
            with pytest.raises(ClientClosed):
                await future
    assert texts == []
    assert "producer_closed group=g: 1 messages are not known to be stored" in caplog.text


@pytest.mark.parametrize("kind", ["push", "ordered", "lite"])
async def test_progress_that_is_not_committed_when_the_loop_ends_is_told(kind: str, tmp_path: Path) -> None:
    far: dict[str, Any] = {"persist_consumer_offset_interval_ms": 600_000}

    async def consume(namesrv: str, make: Callable[[], Any]) -> None:
        seen, consumer = list[object](), make()
        if kind == "lite":
            consumer.subscribe("orders")
            await consumer.start()
            while len(seen) < 3:
                seen += await consumer.poll()
            async with asyncio.timeout(20):
                while not any(one.uncommitted for one in consumer._running.rebalancer.assignment):
                    await consumer.poll(timeout_ms=100)  # the automatic commit is due once a second
            return

        async def handler(message: object) -> None:
            await asyncio.sleep(0.3)  # the next pull, which would carry the progress along, has left by then
            seen.append(message)

        consumer.subscribe("orders", handler)
        await consumer.start()
        await until(lambda: len(seen) == 3)
        await asyncio.sleep(0)

    async with servers(tmp_path) as site:
        await site.send("a", "b", "c")

        def make() -> Any:
            if kind == "lite":
                return LitePullConsumer("g", namesrv=site.namesrv.address, auto_commit_interval_ms=1_000, **far)
            return site.consumer(ordered=kind == "ordered", broker_suspend_max_time_ms=60_000, **far)

        with told() as texts:
            thread = threading.Thread(target=asyncio.run, args=(consume(site.namesrv.address, make),))
            thread.start()
            await asyncio.to_thread(thread.join)
    (text,) = texts
    assert "consumer 'g' was not closed: the progress of" in text


async def test_clients_that_are_closed_tell_nothing(tmp_path: Path) -> None:
    with told() as texts:
        async with servers(tmp_path) as site:
            seen: list[object] = []
            consumer = site.consumer()
            consumer.subscribe("orders", seen.append)
            async with consumer:
                await site.send("a", "b", "c")
                await until(lambda: len(seen) == 3)
            del consumer
    assert texts == []


async def test_lines_of_a_journal_that_nobody_closes_are_written(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, role="consumer", process="c", boot_id="b0", level="audit")
    journal.write(events.State(state="started"))
    path = journal.path
    assert path is not None
    assert path.read_text() == ""
    journal._timer.cancel()  # type: ignore[union-attr]  # as the end of the loop does
    del journal
    gc.collect()
    assert "started" in path.read_text()
