"""Outboxes of open streams, and how closing ends them."""

import asyncio
import tracemalloc

import pytest
from dejamq_broker.base.streams import MOST_ASKED, Outbox, Streams


async def test_items_leave_in_the_order_they_came() -> None:
    outbox: Outbox[int] = Outbox()
    for number in range(3):
        outbox.put(number)
    assert [await outbox.get() for _ in range(3)] == [0, 1, 2]


async def test_the_end_comes_after_what_was_put_before_it() -> None:
    outbox: Outbox[str] = Outbox()
    outbox.put("last")
    outbox.end()
    assert (await outbox.get(), await outbox.get()) == ("last", None)


async def test_what_waits_is_taken_at_once_up_to_the_end_which_lasts() -> None:
    outbox: Outbox[str] = Outbox()
    assert outbox.get_now() is None
    outbox.put("last")
    outbox.end()
    outbox.put("never written")
    assert [outbox.get_now(), outbox.get_now(), outbox.get_now(), await outbox.get()] == ["last", None, None, None]


async def test_closing_ends_every_open_stream_after_its_last_item() -> None:
    streams = Streams()
    taken: list[object] = []

    async def serve(name: str) -> None:
        with streams.outbox() as outbox:
            outbox.put(name)
            while (item := await outbox.get()) is not None:
                taken.append(item)

    serving = [asyncio.create_task(serve(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await streams.close(10_000)
    await asyncio.gather(*serving)
    assert sorted(map(str, taken)) == ["a", "b"]


async def test_closing_nothing_returns_at_once() -> None:
    async with asyncio.timeout(20):
        await Streams().close(60_000)


async def test_a_stream_that_opens_after_closing_ends_at_once() -> None:
    streams = Streams()
    await streams.close(1)
    with streams.outbox() as outbox:
        assert await outbox.get() is None


async def test_closing_waits_for_a_call_that_runs() -> None:
    streams, go, order = Streams(), asyncio.Event(), []

    async def call() -> None:
        with streams.running():
            await go.wait()
            order.append("answered")

    calling = asyncio.create_task(call())
    await asyncio.sleep(0)
    closing = asyncio.create_task(streams.close(60_000))
    await asyncio.sleep(0)
    assert not closing.done()
    go.set()
    await closing
    order.append("closed")
    await calling
    assert order == ["answered", "closed"]


async def test_a_client_that_does_not_read_costs_no_more_than_the_grace() -> None:
    streams = Streams()
    with streams.outbox():
        async with asyncio.timeout(10):
            await streams.close(1)


async def test_closing_twice_is_fine() -> None:
    streams = Streams()
    await streams.close(1)
    async with asyncio.timeout(20):
        await streams.close(60_000)


async def test_a_call_that_fails_is_not_waited_for() -> None:
    streams = Streams()
    with pytest.raises(ValueError, match="broken"), streams.running():
        raise ValueError("broken")
    async with asyncio.timeout(20):
        await streams.close(60_000)


async def test_what_needs_to_be_said_once_waits_once() -> None:
    outbox: Outbox[object] = Outbox()
    for _ in range(3):
        outbox.put_once("changed", "g")
    outbox.put_once("changed too", "h")
    assert [await outbox.get(), await outbox.get()] == ["changed", "changed too"]
    outbox.put_once("changed again", "g")
    outbox.end()
    assert [await outbox.get(), await outbox.get()] == ["changed again", None]


async def test_an_outbox_takes_so_many_bytes_and_more_when_they_are_read() -> None:
    outbox: Outbox[object] = Outbox()
    assert outbox.offer("a", 60, 100)
    assert not outbox.offer("b", 60, 100)
    assert outbox.offer("c", 40, 100)
    assert await outbox.get() == "a"
    assert outbox.offer("d", 60, 100)


async def test_a_client_that_reads_nothing_is_not_read_from() -> None:
    outbox: Outbox[object] = Outbox()
    for _ in range(MOST_ASKED):
        await outbox.room()
    waiting = asyncio.ensure_future(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    outbox.made_room()
    await waiting


async def test_a_taker_that_waits_gets_the_next_item_also_after_one_that_gave_up() -> None:
    outbox: Outbox[str] = Outbox()
    gives_up = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.wait((gives_up,))
    waits = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put("first")
    outbox.put("second")
    assert (await waits, await outbox.get()) == ("first", "second")


def test_an_outbox_that_is_empty_takes_little_memory() -> None:
    """A broker has one for each stream of each client."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        outboxes = [Outbox[str]() for _ in range(100)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(outboxes) < 2000
