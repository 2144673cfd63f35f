"""Cancelling at each await: of a handler, of the whole program, of each thing a program waits for."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from consumer_cluster import Servers, servers, until
from dejamq import ClientClosed, PushConsumer, ReceivedMessage

pytestmark = pytest.mark.usefixtures("transport")

BODIES = {str(number) for number in range(20)}
Waiting = Callable[[PushConsumer], Coroutine[Any, Any, object]]


class CancelAt:
    """Awaited by a task, it runs the work and cancels the task at the work's await number ``at``, counted from 0."""

    def __init__(self, at: int, work: Coroutine[Any, Any, object]) -> None:
        self._at, self._work = at, work
        self.reached = False

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._work.__await__()
        go_on: Callable[[], Any] = partial(next, steps)
        for number in count():
            try:
                waits_for = go_on()
            except StopIteration:
                return
            if number == self._at:
                self.reached = True
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)  # by then it waits here
            try:
                yield waits_for
                go_on = partial(next, steps)
            except BaseException as error:
                go_on = partial(steps.throw, error)


async def cancelled_at(at: int, work: Coroutine[Any, Any, object]) -> bool:
    """Whether the work got as far as that await. Anything but a cancellation is raised."""
    cancelling = CancelAt(at, work)

    async def run() -> None:
        await cancelling

    task = asyncio.ensure_future(run())
    await asyncio.wait((task,))
    if not task.cancelled():
        task.result()
    return cancelling.reached


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


class Seen(list[str]):
    """Bodies, each after the handler waited a little. ``come`` waits without looking again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._news = asyncio.Event()

    async def handle(self, message: ReceivedMessage) -> None:
        await turns(3)
        self.append(message.body.decode())
        self._news.set()

    async def come(self, number: int) -> None:
        async with asyncio.timeout(15):
            while len(self) < number:
                self._news.clear()
                await self._news.wait()


def consuming(here: Servers, seen: Seen, **settings: Any) -> PushConsumer:
    consumer = here.consumer(**settings)
    consumer.subscribe("orders", seen.handle)
    return consumer


async def assert_rest_comes(here: Servers, seen: Seen, **settings: Any) -> None:
    """A further member of the group gets what is missing, and nothing that was done before."""
    rest = Seen()
    async with consuming(here, rest, **settings):
        await until(lambda: {*seen, *rest} == BODIES)
    assert len(seen) + len(rest) == len(BODIES)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_wait_cancelled_at_any_await_of_a_handler_is_a_try_and_its_message_comes_again(
    tmp_path: Path, ordered: bool, batch: bool
) -> None:
    """Something that the handler waits for is cancelled, and the handler lets it pass."""
    entered: list[tuple[int, int]] = []
    done: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        number = int(message.body)
        again = any(number == earlier for earlier, _ in entered)
        entered.append((number, message.reconsume_times))
        part = asyncio.ensure_future(turns(len(BODIES)))
        if not again:
            asyncio.get_running_loop().call_soon(later, number, part)
        await part
        done.append(number)

    async def batch_handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            await handler(message)

    def later(left: int, part: "asyncio.Future[None]") -> None:
        if left:
            asyncio.get_running_loop().call_soon(later, left - 1, part)
        else:
            part.cancel()

    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        consumer = here.consumer(ordered=ordered, suspend_current_queue_time_ms=10, consume_retry_delay_ms=10)
        if batch:
            consumer.subscribe_batch("orders", batch_handler, size=1)
        else:
            consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(done) == len(BODIES))
        assert {line["status"] for line in here.lines("RESULT")} == {"exception", "success"}
    assert sorted(done) == list(range(len(BODIES)))
    assert len(entered) == 2 * len(BODIES)
    assert [tries for _, tries in entered].count(0) == len(BODIES)
    assert {tries for _, tries in entered} == {0, 1}


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_program_cancelled_at_any_await_has_done_each_message_or_leaves_it_to_the_next(
    tmp_path: Path, ordered: bool
) -> None:
    async def program(consumer: PushConsumer, seen: Seen) -> None:
        async with consumer:
            await consumer.wait_assigned()
            for wanted in (1, 10, len(BODIES)):
                await seen.come(wanted)

    done: list[int] = []
    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        for at in count():
            seen, settings = Seen(), {"group": f"g{at}", "ordered": ordered, "max_concurrency": 1}
            consumer = consuming(here, seen, **settings)
            reached = await cancelled_at(at, program(consumer, seen))
            await consumer.close()  # again, where leaving was cancelled
            done.append(len(seen))
            await assert_rest_comes(here, seen, **settings)
            if not reached:
                break
    assert done[0] == 0
    assert any(0 < number < len(BODIES) for number in done)
    assert done[-1] == len(BODIES)


async def started(consumer: PushConsumer) -> None:
    await consumer.start()


async def assigned(consumer: PushConsumer) -> None:
    await consumer.start()
    await consumer.wait_assigned()


async def served(consumer: PushConsumer) -> None:
    asyncio.get_running_loop().call_later(0.05, consumer.stop)
    await consumer.run_until_stopped()


async def entered_and_left(consumer: PushConsumer) -> None:
    async with consumer:
        pass


@pytest.mark.parametrize("waiting", [started, assigned, served, entered_and_left])
async def test_whatever_a_program_waits_for_may_be_cancelled_and_closing_still_works(
    tmp_path: Path, waiting: Waiting
) -> None:
    stop_signals = (signal.SIGTERM, signal.SIGINT)
    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        before, handlers = len(asyncio.all_tasks()), [signal.getsignal(one) for one in stop_signals]
        for at in count():
            consumer = consuming(here, Seen())
            reached = await cancelled_at(at, waiting(consumer))
            await consumer.close()
            assert consumer.closed
            with pytest.raises(ClientClosed):
                await consumer.start()
            assert [signal.getsignal(one) for one in stop_signals] == handlers
            if not reached:
                break
        assert at > 1
        await until(lambda: len(asyncio.all_tasks()) <= before)


async def test_a_start_that_was_cancelled_can_be_made_again(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        for at in count():
            seen = Seen()
            consumer = consuming(here, seen, group=f"g{at}")
            reached = await cancelled_at(at, consumer.start())
            async with consumer:
                await seen.come(len(BODIES))
            if not reached:
                break
    assert at > 1


async def test_closing_that_is_cancelled_at_any_await_goes_on_and_can_be_waited_for_again(tmp_path: Path) -> None:
    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        for at in count():
            seen, settings = Seen(), {"group": f"g{at}", "max_concurrency": 1}
            consumer = consuming(here, seen, **settings)
            await consumer.start()
            await seen.come(3)
            reached = await cancelled_at(at, consumer.close())
            await consumer.close()
            await assert_rest_comes(here, seen, **settings)
            if not reached:
                break
    assert at == 1  # one await: the closing itself is a task of its own, which the cancelled one does not take along


def at_once(task: "asyncio.Task[Any]") -> None:
    task.cancel()


def by_the_clock(task: "asyncio.Task[Any]") -> None:
    asyncio.get_running_loop().call_later(0.01, task.cancel)


@pytest.mark.parametrize("cancel", [at_once, by_the_clock])
@pytest.mark.parametrize("ordered", [False, True])
async def test_handlers_whose_own_task_is_cancelled_take_no_worker_with_them(
    tmp_path: Path, ordered: bool, cancel: Callable[["asyncio.Task[Any]"], None]
) -> None:
    """A home-made time-out: it cancels the task in which the handler runs, which is the worker's."""
    seen = Seen()

    async def handler(message: ReceivedMessage) -> None:
        seen.append(message.body.decode())
        if seen.count(seen[-1]) == 1 and int(seen[-1]) % 5 == 0:
            task = asyncio.current_task()
            assert task is not None
            cancel(task)
            await asyncio.Event().wait()

    async with servers(tmp_path) as here:
        await here.send_known(*BODIES)
        waits: dict[str, Any] = {"consume_retry_delay_ms": 10, "suspend_current_queue_time_ms": 10}
        consumer = here.consumer(ordered=ordered, max_concurrency=1, **waits)
        consumer.subscribe("orders", handler)
        async with consumer:
            await until(lambda: len(seen) == len(BODIES) + 4)
        assert [line["status"] for line in here.lines("RESULT")].count("cancelled") == 4
        assert not here.lines("SENDBACK")
    assert set(seen) == BODIES
