"""Handlers of queues that are consumed in order, with a broker that exists only in memory."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import RAISED, FakeLink, context, received, until
from dejamq.handling.ordered_dispatcher import OrderedDispatcher, OrderedRules
from dejamq.handling.queue_turns import TurnPlace
from dejamq.handling.retry_send import RetrySend
from dejamq.handling.subscriptions import Subscriptions
from dejamq.rebalance.locks import QueueLocks
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.handlers import ConsumeStatus, DeadLetter
from dejamq.receiving.ordered_answers import OrderedStatus
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.receiving.received import ReceivedMessage
from dejamq.values.message import MessageQueue
from dejamq_proto.codes import BrokerUnavailable, RouteNotFound
from dejamq_proto.records.record import decode
from journalled import journalled

RETRY_QUEUES = [MessageQueue("%RETRY%g", name, 0) for name in ("broker-b", "broker-a")]
TIMES: dict[str, Any] = {"suspend_current_queue_time_ms": 10, "lock_retry_ms": 5}


def owned_queue(number: int = 1, queue_id: int = 0) -> OwnedQueue:
    queue = MessageQueue("orders", "broker-a", queue_id)
    return OwnedQueue(number, queue, ProcessQueue(0), 0, locked_at_s=time.monotonic())


class Bench:
    """A dispatcher with its workers."""

    def __init__(self, handler: Callable[..., Any], directory: Path | None, batch_size: int, **options: Any) -> None:
        rules = OrderedRules(options.pop("workers", 4), **{
            name: options.pop(name) for name in ("auto_commit", "max_reconsume_times") if name in options
        })  # fmt: skip
        self.link = FakeLink()
        self.context = context(self.link, directory, **TIMES | options)
        subscriptions = Subscriptions("g", lambda: 0)
        subscriptions.add("orders", handler, tags="*", batch_size=batch_size)
        self.deliveries = Deliveries(self.context)
        retries = RetrySend(self.context, self.deliveries, self._retry_queues)
        locks = QueueLocks(
            self.context, lambda: (), lambda owned, timeout_s: self.dispatcher.quiet(owned, timeout_s), lambda: None
        )
        self.dispatcher = OrderedDispatcher(self.context, subscriptions, self.deliveries, retries, rules, locks)
        self.tasks = [asyncio.create_task(self.dispatcher.work()) for _ in range(rules.max_concurrency)]
        self.retry_queues = RETRY_QUEUES

    async def _retry_queues(self) -> list[MessageQueue]:
        if not self.retry_queues:
            raise RouteNotFound("%RETRY%g")
        return self.retry_queues

    async def end(self) -> None:
        await self.dispatcher.drain(1)
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)
        self.dispatcher.close()
        self.deliveries.close()
        self.context.journal.close()


@asynccontextmanager
async def dispatching(
    handler: Callable[..., Any], directory: Path | None = None, batch_size: int = 0, **options: Any
) -> AsyncIterator[Bench]:
    bench = Bench(handler, directory, batch_size, **options)
    try:
        yield bench
    finally:
        await bench.end()


async def test_one_handler_at_a_time_runs_for_a_queue_however_many_workers_there_are() -> None:
    seen, running, most = list[int](), 0, 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        seen.append(message.queue_offset)
        running -= 1

    owned = owned_queue()
    async with dispatching(handler) as bench:
        for start in range(0, 60, 6):
            bench.dispatcher.submit(owned, received(owned, *range(start, start + 6)))
            await asyncio.sleep(0)
        await until(lambda: owned.process_queue.commit_offset == 60)
    assert (seen, most) == (list(range(60)), 1)


async def test_queues_with_handlers_that_wait_run_side_by_side() -> None:
    together = asyncio.Barrier(4)

    async def handler(message: ReceivedMessage) -> None:
        await together.wait()

    owned = [owned_queue(number, number) for number in range(1, 5)]
    async with dispatching(handler) as bench:
        for one in owned:
            bench.dispatcher.submit(one, received(one, 0))
        await until(lambda: all(one.process_queue.commit_offset == 1 for one in owned))


async def test_a_queue_whose_lock_is_too_old_is_locked_again_before_the_next_handler() -> None:
    seen: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(len(bench.link.lock_calls))

    owned = owned_queue()
    owned.locked_at_s = time.monotonic() - 31
    async with dispatching(handler) as bench:
        bench.dispatcher.submit(owned, received(owned, 0, 1))
        await until(lambda: len(seen) == 2)
    assert seen == [1, 1], "locked once, then believed in"


async def test_without_an_answer_of_the_broker_nothing_is_handled_until_the_lock_is_renewed() -> None:
    seen: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    owned = owned_queue()
    owned.locked_at_s = time.monotonic() - 31
    async with dispatching(handler) as bench:
        bench.link.refuse["lock_batch"] = BrokerUnavailable("gone")
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: len(bench.link.lock_calls) >= 3)
        assert seen == []
        bench.link.refuse.clear()
        await until(lambda: seen == [0])


async def test_a_queue_whose_lock_is_refused_is_handled_no_more() -> None:
    seen: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    owned = owned_queue()
    owned.locked_at_s = time.monotonic() - 31
    async with dispatching(handler) as bench:
        bench.link.locked_by_others = {("orders", 0)}
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.dropped)
        bench.link.locked_by_others = set()
        await until(lambda: bench.dispatcher._turns[1].place is TurnPlace.IDLE)
    assert seen == []
    assert owned.lock_lost


async def test_a_result_after_the_queue_was_dropped_counts_for_nothing(tmp_path: Path) -> None:
    """Cause O9: the lock is kept until the handler ends, its result is thrown away all the same."""
    go_on, entered = asyncio.Event(), list[int]()

    async def handler(message: ReceivedMessage) -> None:
        entered.append(message.queue_offset)
        await go_on.wait()

    owned = owned_queue()
    async with dispatching(handler, tmp_path) as bench:
        bench.dispatcher.submit(owned, received(owned, 0, 1))
        await until(lambda: entered)
        assert not await bench.dispatcher.quiet(owned, 0.001)
        owned.process_queue.dropped = True
        go_on.set()
        assert await bench.dispatcher.quiet(owned, 10)
        await until(lambda: not bench.dispatcher._busy)
    assert (entered, owned.process_queue.low_water) == ([0], 0)
    (result,) = journalled(tmp_path, "RESULT")
    assert (result["status"], result["pq_dropped"]) == ("success", True)


async def test_a_regained_queue_waits_for_the_handler_of_its_former_ownership() -> None:
    go_on, seen = asyncio.Event(), list[str]()

    async def handler(message: ReceivedMessage) -> None:
        seen.append("entered")
        await go_on.wait()
        seen.append("ended")

    before, after = owned_queue(1), owned_queue(2)
    async with dispatching(handler) as bench:
        bench.dispatcher.submit(before, received(before, 0))
        await until(lambda: seen)
        before.process_queue.dropped = True
        bench.dispatcher.submit(after, received(after, 0))
        await until(lambda: bench.dispatcher._turns[2].place is TurnPlace.PAUSED)
        assert seen == ["entered"]
        go_on.set()
        await until(lambda: len(seen) == 4)
    assert seen == ["entered", "ended", "entered", "ended"]


@pytest.mark.parametrize("batch_size", [0, 1])
@pytest.mark.parametrize("error", RAISED)
async def test_whatever_a_handler_raises_is_a_failed_try_that_is_logged(
    error: Callable[[], BaseException], batch_size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[int] = []

    async def handler(messages: Any) -> None:
        times.append((messages[0] if batch_size else messages).reconsume_times)
        if len(times) == 1:
            raise error()

    owned = owned_queue()
    async with dispatching(handler, tmp_path, batch_size, max_reconsume_times=3) as bench:
        bench.dispatcher.submit(owned, received(owned, 0, 1))
        await until(lambda: owned.process_queue.commit_offset == 2)
    assert times == [0, 1, 0]
    assert next(line["status"] for line in journalled(tmp_path, "RESULT")) == "exception"
    assert "handler_failed" in caplog.text


async def test_draining_waits_for_the_handler_and_starts_no_other() -> None:
    entered, go_on = list[int](), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        entered.append(message.queue_offset)
        await go_on.wait()

    owned = owned_queue()
    async with dispatching(handler) as bench:
        bench.dispatcher.submit(owned, received(owned, 0, 1))
        await until(lambda: entered)
        draining = asyncio.create_task(bench.dispatcher.drain(10))
        await asyncio.sleep(0)
        go_on.set()
        assert await draining
    assert (entered, owned.process_queue.low_water) == ([0], 1)


async def test_a_drain_that_takes_too_long_or_is_hurried_says_so() -> None:
    entered: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        entered.append(1)
        await asyncio.Event().wait()

    for hurry in (False, True):
        owned = owned_queue()
        async with dispatching(handler) as bench:
            bench.dispatcher.submit(owned, received(owned, 0))
            await until(lambda: len(entered) == 1 + hurry)  # noqa: B023  # awaited at once
            draining = asyncio.create_task(bench.dispatcher.drain(600 if hurry else 0.001))
            await asyncio.sleep(0)
            if hurry:
                bench.dispatcher.hurry()
            assert not await draining


async def test_an_exhausted_message_goes_to_the_broker_it_came_from_with_its_tries(tmp_path: Path) -> None:
    async def handler(message: ReceivedMessage) -> ConsumeStatus:
        return ConsumeStatus.RECONSUME_LATER

    owned = owned_queue()
    async with dispatching(handler, tmp_path, max_reconsume_times=1) as bench:
        bench.dispatcher.submit(owned, received(owned, 5, TAGS="paid", TRAN_MSG="true", DELAY="2"))
        await until(lambda: owned.process_queue.commit_offset == 6)
    (run,) = bench.link.sent
    assert (run.queues, run.group, run.rewrite) == ([("%RETRY%g", 0)], "CLIENT_INNER_PRODUCER", True)
    sent = decode(bytes(run.records[0]))
    assert (sent.topic, sent.body, sent.reconsume_times) == ("%RETRY%g", b"body-5", 1)
    assert sent.properties == {
        "UNIQ_KEY": f"{5:032X}", "TAGS": "paid", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": f"{5:032X}",
        "RECONSUME_TIME": "1", "MAX_RECONSUME_TIMES": "1", "DELAY": "4",
    }  # fmt: skip
    assert [line["event"] for line in journalled(tmp_path)] == ["DELIVER", "RESULT", "DELIVER", "RESULT", "SENDBACK"]


async def test_what_cannot_be_given_up_suspends_the_queue_and_is_tried_again() -> None:
    times: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        if len(times) == 2:
            bench.retry_queues = RETRY_QUEUES
            bench.link.refuse["send_run"] = BrokerUnavailable("gone")
        if len(times) == 3:
            bench.link.refuse.clear()
        raise DeadLetter("broken")

    owned = owned_queue()
    async with dispatching(handler) as bench:
        bench.retry_queues = []
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert times == [0, 1, 2]


async def test_a_batch_with_one_message_that_has_tries_left_is_run_again_with_its_dead_letters() -> None:
    """Cause L4: dead letters may be made twice."""
    batches: list[list[int]] = []

    async def handler(messages: list[ReceivedMessage]) -> object:
        batches.append([message.reconsume_times for message in messages])
        return ConsumeStatus.RECONSUME_LATER if len(batches) == 1 else None

    owned = owned_queue()
    async with dispatching(handler, batch_size=8, max_reconsume_times=3) as bench:
        first = received(owned, 0, TIMES="3")
        bench.dispatcher.submit(owned, first + received(owned, 1))
        await until(lambda: owned.process_queue.commit_offset == 2)
    assert batches == [[3, 0], [3, 1]]
    assert len(bench.link.sent) == 1


async def test_without_auto_commit_a_message_that_is_given_up_waits_for_the_next_commit() -> None:
    async def handler(message: ReceivedMessage) -> OrderedStatus:
        if message.queue_offset == 0:
            raise DeadLetter("broken")
        return OrderedStatus.COMMIT

    owned = owned_queue()
    async with dispatching(handler, auto_commit=False) as bench:
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: bench.link.sent and not bench.dispatcher._busy)
        assert owned.process_queue.low_water == 0
        bench.dispatcher.submit(owned, received(owned, 1))
        await until(lambda: owned.process_queue.commit_offset == 2)


@pytest.mark.parametrize("level", ["audit", "forensic"])
async def test_a_slow_success_is_journalled_as_a_timeout_and_counts(tmp_path: Path, level: str) -> None:
    async def handler(message: ReceivedMessage) -> None: ...

    owned = owned_queue()
    async with dispatching(handler, tmp_path, level=level, consume_timeout_ms=0) as bench:
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert [line["status"] for line in journalled(tmp_path, "RESULT")] == ["timeout"]


async def test_a_message_without_a_handler_suspends_its_queue() -> None:
    async def handler(message: ReceivedMessage) -> None: ...

    queue = MessageQueue("invoices", "broker-a", 0)
    owned = OwnedQueue(1, queue, ProcessQueue(0), 0, locked_at_s=time.monotonic())
    async with dispatching(handler) as bench:
        (message,) = received(owned, 0)
        bench.dispatcher.submit(owned, [message])
        await until(lambda: message.local_retries == 2)
    assert owned.process_queue.low_water == 0


async def test_a_topic_subscribed_anew_gets_its_new_handler() -> None:
    seen: list[str] = []

    async def first(message: ReceivedMessage) -> None:
        seen.append("first")

    def second(message: ReceivedMessage) -> None:
        seen.append("second")

    owned = owned_queue()
    async with dispatching(first) as bench:
        bench.dispatcher.submit(owned, received(owned, 0))
        await until(lambda: owned.process_queue.commit_offset == 1)
        bench.dispatcher._subscriptions.remove("orders")
        bench.dispatcher._subscriptions.add("orders", second, tags="*")
        bench.dispatcher.submit(owned, received(owned, 1))
        await until(lambda: owned.process_queue.commit_offset == 2)
    assert seen == ["first", "second"]


async def test_a_dropped_queue_is_not_quiet_while_its_handler_runs_whatever_is_opened_meanwhile() -> None:
    go_on, entered = asyncio.Event(), list[int]()

    async def handler(message: ReceivedMessage) -> None:
        entered.append(message.queue_offset)
        await go_on.wait()

    before, other = owned_queue(1, 1), owned_queue(2, 2)
    async with dispatching(handler) as bench:
        bench.dispatcher.submit(before, received(before, 0))
        await until(lambda: entered)
        before.process_queue.dropped = True
        bench.dispatcher.submit(other, received(other, 0))
        assert not await bench.dispatcher.quiet(before, 0)
        go_on.set()
        assert await bench.dispatcher.quiet(before, 10)
