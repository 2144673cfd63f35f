"""Where a queue of a lite pull consumer begins, and where it goes on when the broker corrects it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from consumer_fakes import QUEUE, FakeLink, context, received
from dejamq.handling.subscriptions import Subscriptions
from dejamq.lite.rebalancer import ChosenQueues, LiteStart
from dejamq.lite.running import LiteOffsets, LiteOptions, LiteRunning
from dejamq.lite.shelf import polled
from dejamq.rebalance.consume_from import ConsumeFrom, MessageModel
from dejamq.receiving.assignment import OwnedQueue
from dejamq.values.allocation import strategy_named
from dejamq.values.config import lite_config
from dejamq.values.message import MessageQueue


@asynccontextmanager
async def idle() -> AsyncIterator[LiteRunning]:
    """One whose name server does not exist: nothing of it has begun."""
    config = lite_config("127.0.0.1:1", {})
    options = LiteOptions("g", config, MessageModel.CLUSTERING, ConsumeFrom.LAST_OFFSET, 0, strategy_named("averagely"))
    subscriptions = Subscriptions("g", lambda: 0, retries=False)
    subscriptions.add("orders", print, tags="*")
    running = LiteRunning(options, subscriptions, ChosenQueues(), set())
    try:
        yield running
    finally:
        await running.instance.close()


def own(running: LiteRunning, start: int = 0) -> OwnedQueue:
    running.rebalancer._begin(QUEUE, start, "broker")
    return running.rebalancer.assignment.owned[QUEUE]


async def test_an_offset_below_the_oldest_goes_forward_and_what_is_held_stays() -> None:
    async with idle() as running:
        owned = own(running)
        running.shelf.put(owned, received(owned, 0, 1))
        owned.next_offset = 2
        running.moved(owned, 50)
        assert running.rebalancer.assignment.owned[QUEUE] is owned
        assert owned.next_offset == 50
        assert [message.queue_offset for message in running.shelf.take(9)] == [0, 1]


async def test_an_offset_beyond_the_end_begins_anew_and_what_is_held_is_let_go() -> None:
    async with idle() as running:
        owned = own(running, 90)
        running.shelf.put(owned, received(owned, 90, 91))
        owned.next_offset = 92
        running.moved(owned, 50)
        again = running.rebalancer.assignment.owned[QUEUE]
        assert owned.dropped
        assert (again.next_offset, polled(again).position) == (50, None)
        assert running.shelf.take(9) == []


async def test_a_seek_keeps_what_was_committed_and_sets_the_position() -> None:
    async with idle() as running:
        owned = own(running)
        polled(owned).committed = 7
        running.seek(owned, 3)
        again = polled(running.rebalancer.assignment.owned[QUEUE])
        assert (again.committed, again.position, len(again)) == (7, 3, 0)
        assert owned.fetching is not None
        await asyncio.wait((owned.fetching,))
        assert owned.fetching.cancelled()


async def test_a_pull_never_carries_a_commit() -> None:
    async with idle() as running:
        owned = own(running)
        polled(owned).committed = 7
        assert running.offsets.piggyback(owned, 1) is None


def start_rule(link: FakeLink, seeks: dict[MessageQueue, int]) -> LiteStart:
    nothing_journalled: Any = None
    made = context(link)
    return LiteStart(made, LiteOffsets(made, nothing_journalled), ConsumeFrom.LAST_OFFSET, 0, seeks)


async def test_a_sought_offset_comes_before_the_committed_one_and_only_once() -> None:
    link = FakeLink()
    link.committed[QUEUE.topic, QUEUE.queue_id] = 9
    start = start_rule(link, {QUEUE: 4})
    assert await start.start_of(QUEUE) == (4, "seek")
    assert await start.start_of(QUEUE) == (9, "broker")


async def test_a_seek_while_the_broker_is_asked_counts() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    class SlowLink(FakeLink):
        async def query_offset(self, group: str, topic: str, queue_id: int, *, seq: int = 0) -> int | None:
            asked.set()
            await go_on.wait()
            return 9

    seeks = dict[MessageQueue, int]()
    start = start_rule(SlowLink(), seeks)
    opening = asyncio.ensure_future(start.start_of(QUEUE))
    await asked.wait()
    seeks[QUEUE] = 4
    go_on.set()
    assert await opening == (4, "seek")
