"""Failed and slow messages on their way to another try, with a broker that exists only in memory."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from consumer_fakes import FakeLink, dispatching, owned_queue, received, until
from dejamq.receiving.handlers import DeadLetter, RetryLater
from dejamq.receiving.received import ReceivedMessage
from dejamq_proto.codes import BrokerUnavailable, DejamqError, SendTimeout
from dejamq_proto.records.record import Record, decode
from journalled import journalled

LATER_S = 1_000.0
"""After every time-out of these tests."""


def sent(link: FakeLink) -> list[Record]:
    return [decode(bytes(run.records[0])) for run in link.sent]


@pytest.mark.parametrize("error", [BrokerUnavailable("gone", definite=True), SendTimeout("no answer", definite=False)])
async def test_a_message_whose_send_back_failed_is_sent_to_the_retry_topic_by_the_client(
    error: DejamqError, tmp_path: Path
) -> None:
    async def handler(message: ReceivedMessage) -> None:
        raise ValueError("no such customer")

    owned, link = owned_queue(), FakeLink()
    link.refuse["send_back"] = error
    async with dispatching(handler, link=link, directory=tmp_path, tries=9) as dispatcher:
        dispatcher.submit(owned, received(owned, 5, TIMES="2", KEYS="order-1"))
        await until(lambda: owned.process_queue.commit_offset == 6)
    (record,) = sent(link)
    assert (record.topic, record.body, record.reconsume_times) == ("%RETRY%g", b"body-5", 3)
    assert record.properties == {
        "UNIQ_KEY": f"{5:032X}", "TIMES": "2", "KEYS": "order-1", "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": f"{5:032X}", "RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "9", "DELAY": "5",
        "DEAD_LETTER_REASON": "ValueError: no such customer",
    }  # fmt: skip
    told = [(line["path"], line["outcome"]) for line in journalled(tmp_path, "SENDBACK")]
    assert told == [("rpc", "failed" if error.definite else "indefinite"), ("fallback", "ok")]


@pytest.mark.parametrize(
    ("tries", "wish", "level", "limit"),
    [(None, RetryLater(7), "7", None), (None, ValueError(), "5", None), (9, DeadLetter("broken"), "5", "2")],
)
async def test_the_clients_own_send_keeps_what_the_handler_wished(
    tries: int | None, wish: Exception, level: str, limit: str | None
) -> None:
    """Brokers make dead letters of records with more tries than their limit."""

    async def handler(message: ReceivedMessage) -> None:
        raise wish

    owned, link = owned_queue(), FakeLink()
    link.refuse["send_back"] = BrokerUnavailable("gone")
    async with dispatching(handler, link=link, tries=tries) as dispatcher:
        dispatcher.submit(owned, received(owned, 5, TIMES="2", MAX_RECONSUME_TIMES="77"))
        await until(lambda: owned.process_queue.commit_offset == 6)
    properties = sent(link)[0].properties
    assert (properties["DELAY"], properties.get("MAX_RECONSUME_TIMES")) == (level, limit)


async def test_a_message_that_nobody_takes_is_tried_here_again_with_its_tries_counted(tmp_path: Path) -> None:
    times: list[int] = []

    async def handler(message: ReceivedMessage) -> None:
        times.append(message.reconsume_times)
        raise ValueError

    owned, link = owned_queue(), FakeLink()
    link.refuse = {"send_back": BrokerUnavailable("gone"), "send_run": BrokerUnavailable("gone too")}
    async with dispatching(handler, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 5))
        await until(lambda: len(times) == 3)
        assert owned.process_queue.low_water == 5
        del link.refuse["send_run"]
        await until(lambda: owned.process_queue.commit_offset == 6)
    assert times[:3] == [0, 1, 2]
    assert sent(link)[0].reconsume_times == len(times)
    kinds = [line.get("kind", "first") for line in journalled(tmp_path, "DELIVER")]
    assert kinds == ["first"] + ["local_retry"] * (len(times) - 1)


class Slow:
    """A handler that waits at the given offsets."""

    def __init__(self, *offsets: int, error: Exception | None = None) -> None:
        self.offsets, self.error, self.go_on, self.entered = offsets, error, asyncio.Event(), 0

    async def __call__(self, message: Any) -> None:
        messages = message if isinstance(message, list) else [message]
        self.entered += len(messages)
        if any(one.queue_offset in self.offsets for one in messages):
            await self.go_on.wait()
            if self.error is not None:
                raise self.error


async def test_a_message_whose_handler_takes_too_long_is_sent_back_while_it_runs(tmp_path: Path) -> None:
    """Cause B13."""
    owned, link, handler = owned_queue(), FakeLink(), Slow(0)
    async with dispatching(handler, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 0, 1, 2))
        await until(lambda: handler.entered == 3)
        await dispatcher.overdue.sweep([owned], time.monotonic())
        assert (owned.process_queue.low_water, link.sent_back) == (0, [])
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        assert owned.process_queue.commit_offset == 3
        handler.go_on.set()
    (request,) = link.sent_back
    assert (request.delay_level, request.log_offset, request.delivery_ref) == (3, 0, "b00:1")
    told = [(line["event"], line.get("outcome"), line.get("reason")) for line in journalled(tmp_path)]
    assert told[-2:] == [("SENDBACK", "ok", "expired"), ("RESULT", None, None)]


async def test_the_journal_tells_an_expired_message_on_the_way_of_the_clients_own_send_too(tmp_path: Path) -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(0)
    link.refuse["send_back"] = BrokerUnavailable("gone", definite=True)
    async with dispatching(handler, link=link, directory=tmp_path) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: handler.entered)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        handler.go_on.set()
    told = [(line["path"], line["outcome"], line["reason"]) for line in journalled(tmp_path, "SENDBACK")]
    assert told == [("rpc", "failed", "gone"), ("fallback", "ok", "expired")]


async def test_a_handler_that_fails_after_its_message_was_given_back_does_not_send_it_back_again() -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(0, error=ValueError("too late"))
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: handler.entered)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        handler.go_on.set()
    assert len(link.sent_back) == 1


@pytest.mark.parametrize("stored", [True, False])
async def test_a_handler_that_fails_while_its_message_is_given_back_does_not_send_it_back_again(stored: bool) -> None:
    answered, asked, tries = asyncio.Event(), asyncio.Event(), 0

    class Hesitant(FakeLink):
        async def send_back(self, request: Any) -> None:
            nonlocal tries
            tries += 1
            asked.set()
            await answered.wait()
            if not stored and tries == 1:
                raise BrokerUnavailable("gone")

    owned, link, handler = owned_queue(), Hesitant(), Slow(0, error=ValueError("too late"))
    link.refuse["send_run"] = BrokerUnavailable("gone too")
    async with dispatching(handler, link=link, workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, 0, 1))
        await until(lambda: handler.entered)
        sweeping = asyncio.ensure_future(dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S))
        await asked.wait()
        handler.go_on.set()
        await until(lambda: handler.entered == 2)
        answered.set()
        await sweeping
        await until(lambda: owned.process_queue.commit_offset == 2)
    assert tries == (1 if stored else 2)  # not stored: it was delivered here again, and failed again


async def test_only_what_holds_the_low_water_mark_is_given_back_sixteen_at_a_time() -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(*range(40))
    async with dispatching(handler, link=link, workers=40) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(40)))
        await until(lambda: handler.entered == 40)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        assert owned.process_queue.low_water == 16
        handler.go_on.set()
    assert sorted(request.log_offset for request in link.sent_back) == [100 * number for number in range(16)]


async def test_the_messages_of_an_overdue_list_are_given_back_one_by_one() -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(0)
    async with dispatching(handler, link=link, batch_size=4) as dispatcher:
        dispatcher.submit(owned, received(owned, *range(4)))
        await until(lambda: handler.entered == 4)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        assert (len(link.sent_back), owned.process_queue.commit_offset) == (4, 4)
        handler.go_on.set()


async def test_messages_that_wait_for_a_worker_are_not_overdue() -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(1)
    async with dispatching(handler, link=link, workers=1) as dispatcher:
        dispatcher.submit(owned, received(owned, 1, 0))
        await until(lambda: handler.entered)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        assert (link.sent_back, owned.process_queue.low_water) == ([], 0)
        handler.go_on.set()


async def test_an_overdue_message_that_nobody_takes_stays_with_its_handler() -> None:
    owned, link, handler = owned_queue(), FakeLink(), Slow(0)
    link.refuse = {"send_back": BrokerUnavailable("gone"), "send_run": BrokerUnavailable("gone too")}
    async with dispatching(handler, link=link) as dispatcher:
        dispatcher.submit(owned, received(owned, 0))
        await until(lambda: handler.entered)
        await dispatcher.overdue.sweep([owned], time.monotonic() + LATER_S)
        assert owned.process_queue.low_water == 0
        handler.go_on.set()
        await until(lambda: owned.process_queue.commit_offset == 1)
    assert handler.entered == 1
