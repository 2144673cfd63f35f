import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from consumer_fakes import RAISED, FakeLink, a_fetcher, context, dispatching, owned_queue, received, stored, until
from dejamq import ConfigError, PushConsumer, ReceivedMessage
from dejamq.receiving.assignment import OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.fetcher import Fetcher
from dejamq.receiving.handlers import BatchResult, ConsumeStatus, RetryLater
from dejamq.receiving.hooks import ConsumeContext, ConsumeHooks, Filters, Judge
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.ordered_answers import OrderedStatus, SuspendQueue


class Spy:
    """A hook that remembers what it was told, and in which order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.last: ConsumeContext | None = None

    def before_consume(self, context: ConsumeContext) -> None:
        context.values["began"] = True
        self.calls.append(("before", context.status))

    def after_consume(self, context: ConsumeContext) -> None:
        assert context.values == {"began": True}
        self.calls.append(("after", context.status))
        self.last = context


def hooks(*added: Any, **judge: Any) -> ConsumeHooks:
    made = ConsumeHooks("g", Judge(**{"timeout_s": 900.0} | judge))
    for hook in added:
        made.add(hook)
    return made


def answering(answer: object) -> Callable[[Any], Any]:
    async def handler(argument: Any) -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return handler


@pytest.mark.parametrize(
    ("answer", "ordered", "status"),
    [
        (None, False, "success"), (ConsumeStatus.RECONSUME_LATER, False, "reconsume"),
        (KeyError("x"), False, "exception"), (17, False, "wrong_value"), (RetryLater(3), False, "reconsume"),
        (BatchResult(0), False, "success"), (SystemExit(1), False, "exception"),
        (asyncio.CancelledError(), False, "exception"), (asyncio.CancelledError(), True, "exception"),
        (None, True, "uncommitted"), (OrderedStatus.ROLLBACK, True, "rollback"), (SuspendQueue(10), True, "suspend"),
    ],
)  # fmt: skip
async def test_hooks_are_told_before_and_after_how_a_handler_ended(answer: Any, ordered: bool, status: str) -> None:
    spy = Spy()
    (message,) = received(owned_queue(), 5)
    hooked = hooks(spy, ordered=ordered, auto_commit=not ordered).around(answering(answer))
    try:
        returned = await hooked(message)
    except BaseException as error:
        returned = error
    assert returned is answer
    assert spy.calls == [("before", None), ("after", status)]
    assert spy.last is not None
    assert (spy.last.group, spy.last.queue, list(spy.last.messages)) == ("g", message.queue, [message])
    assert spy.last.error is (answer if isinstance(answer, BaseException) else None)
    assert spy.last.success is (status == "success")


async def test_a_handler_that_ended_too_late_is_told_as_timed_out() -> None:
    spy = Spy()
    await hooks(spy, timeout_s=0.0).around(answering(None))(received(owned_queue(), 5)[0])
    assert spy.calls[-1] == ("after", "timeout")


@pytest.mark.parametrize("error", RAISED)
async def test_a_hook_that_fails_changes_nothing(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def before_consume(self, context: ConsumeContext) -> None:
            raise error()

        after_consume = before_consume

    spy = Spy()
    assert await hooks(Broken(), spy).around(answering("fine"))(received(owned_queue(), 5)[0]) == "fine"
    assert len(spy.calls) == 2
    assert [record.message.split()[:2] for record in caplog.records] == [["consume_hook_failed", "hook=Broken"]] * 2


@pytest.mark.parametrize("batch_size", [0, 4])
async def test_hooks_are_around_every_call_of_a_subscribed_handler(batch_size: int) -> None:
    spy, seen, owned = Spy(), list[object](), owned_queue()

    async def handler(argument: object) -> None:
        seen.append(argument)

    async with dispatching(handler, batch_size=batch_size, hooks=hooks(spy)) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(4)))
        await until(lambda: owned.process_queue.commit_offset == 4)
    assert spy.calls == [("before", None), ("after", "success")] * len(seen)
    assert len(seen) == (1 if batch_size else 4)


async def test_what_a_filter_refuses_is_not_delivered_and_counts_as_consumed() -> None:
    link, owned, taken = FakeLink(), owned_queue(), list[int]()
    link.records = [stored(offset) for offset in range(10)]
    fetcher = fetching(link, taken)
    fetcher.filters.add(lambda message: message.queue_offset % 2 == 0)
    fetcher.filters.add(lambda message: message.queue_offset != 8)
    task = fetcher_task(fetcher, owned)
    await until(lambda: owned.next_offset == 10)
    task.cancel()
    assert taken == [0, 2, 4, 6]
    for offset in taken:
        owned.process_queue.finish(offset)
    assert owned.process_queue.commit_offset == 10


def fetching(link: FakeLink, taken: list[int]) -> Fetcher:
    made = context(link)
    deliveries = Deliveries(made)
    store = RemoteOffsetStore(made, deliveries)
    return a_fetcher(
        made, deliveries, store, lambda owned, messages: taken.extend(one.queue_offset for one in messages)
    )


def fetcher_task(fetcher: Fetcher, owned: OwnedQueue) -> Any:
    return asyncio.ensure_future(fetcher.run(owned))


@pytest.mark.parametrize("error", RAISED)
def test_a_filter_that_fails_keeps_the_message(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def keep(message: ReceivedMessage) -> bool:
        raise error()

    filters = Filters()
    filters.add(keep)
    assert filters.keeps(received(owned_queue(), 5)[0])
    assert "filter_failed" in caplog.text


def test_what_is_no_hook_or_filter_is_refused_at_once() -> None:
    consumer = PushConsumer("g", namesrv="127.0.0.1:1")
    wrong: Any = print
    with pytest.raises(ConfigError, match="before_consume"):
        consumer.add_hook(wrong)
    with pytest.raises(ConfigError, match="no filter"):
        consumer.add_filter(None)  # type: ignore[arg-type]  # that is the test


class Waiting:
    async def before_consume(self, context: ConsumeContext) -> None: ...

    def after_consume(self, context: ConsumeContext) -> None: ...


def test_what_would_have_to_be_awaited_is_no_hook_or_filter() -> None:
    """A coroutine counts as true: such a filter would keep everything, and such a hook would never run."""

    async def keep(message: ReceivedMessage) -> bool:
        return False

    consumer = PushConsumer("g", namesrv="127.0.0.1:1")
    with pytest.raises(ConfigError, match="plain function"):
        consumer.add_filter(keep)  # type: ignore[arg-type]  # that is the test
    hook: Any = Waiting()
    with pytest.raises(ConfigError, match="plain functions"):
        consumer.add_hook(hook)
