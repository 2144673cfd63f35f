"""What an answer or a failure means for each send of a run: every send ends once, or goes again."""

import asyncio
import logging
from time import monotonic
from typing import Any

import numpy as np
import pytest
from dejamq import Message, MessageQueue
from dejamq.sending.backlog import CALL_BYTES
from dejamq.sending.batching import BrokerBacklog, Flight
from dejamq.sending.encoding import template
from dejamq.sending.fault_strategy import FaultTable
from dejamq.sending.hooks import SendContext, SendHooks
from dejamq.sending.journal import SendJournal
from dejamq.sending.outcomes import Outcomes
from dejamq.sending.sends import ONEWAY, Extra, Sends
from dejamq.values.message import SendResult, SendStatus
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.wire.messages import SendRunResult

SIZE = 100
QUEUE = MessageQueue("t", "a", 0)
LOST = BrokerUnavailable("a ended the stream", definite=False)
NOT_LEFT = BrokerUnavailable("a does not listen", definite=True)


def sends(*numbers: int, waited: bool = True, left_s: float = 60, **more: Any) -> Sends:
    loop, common = asyncio.get_running_loop(), template("t", 0, None)
    made = Sends(**more)
    for number in numbers:
        made.messages.append(Message("t", b"body %d" % number))
        made.commons.append(common)
        made.sizes.append(SIZE)
        made.futures.append(loop.create_future() if waited else None)
        made.queues.append(QUEUE)
        made.deadlines.append(monotonic() + left_s)
    made.call_ids = numbers
    return made


def pinned(*numbers: int) -> Sends:
    made = sends(*numbers)
    made.extras = [Extra(common.before, common.rest, where=QUEUE) for common in made.commons]
    return made


def outcomes(*, hooks: SendHooks | None = None, faults: FaultTable | None = None, **settings: Any) -> Outcomes:
    journal = Journal(None, role="producer", process="p", boot_id="b", level=Level.OFF)
    config = ProducerConfig(**settings)
    return Outcomes(config, "g", SendJournal(journal, "g", None), hooks or SendHooks(), faults)


def left(ends: Outcomes, under_way: Sends) -> Flight:
    """A run of these that is under way."""
    ends.backlog.take(len(under_way), SIZE * len(under_way))
    under_way.tries += 1
    sizes = np.array([SIZE] * len(under_way), "<u4")
    deadline = min(under_way.deadlines)
    flight = Flight(BrokerBacklog("a"), under_way, sizes, 1, "h:1", deadline, departed=monotonic())
    ends.leaving(flight)
    return flight


def stored(count: int, code: Code = Code.SUCCESS) -> SendRunResult:
    return SendRunResult(
        code=code, store_timestamp_ms=5, store_host="1.2.3.4:5", queue_offsets=np.arange(count, dtype="<u8") + 7,
        span_starts=np.array([0], "<u4"), span_log_offsets=np.array([1000], "<u8"),
    )  # fmt: skip


def refused(code: Code, bad_record: int = -1) -> SendRunResult:
    return SendRunResult(code=code, remark="no", bad_record=bad_record)


def result_of(future: "asyncio.Future[SendResult] | None") -> SendResult:
    assert future is not None
    return future.result()


def error_of(future: "asyncio.Future[SendResult] | None") -> DejamqError:
    assert future is not None
    error = future.exception()
    assert isinstance(error, DejamqError)
    return error


async def test_each_send_of_a_stored_run_gets_its_place_and_counts_no_more() -> None:
    ends, three = outcomes(), sends(0, 1, 2)
    assert not ends.answered(left(ends, three), stored(3))
    results = list(map(result_of, three.futures))
    assert [result.queue_offset for result in results] == [7, 8, 9]
    assert [result.message_id for result in results] == [message.message_id for message in three.messages]
    assert {result.status for result in results} == {SendStatus.SEND_OK}
    assert (ends.backlog.calls, ends.backlog.bytes) == (0, 0)


async def test_of_a_refused_run_the_record_at_fault_fails_and_the_innocent_go_again_uncounted() -> None:
    ends, three = outcomes(), sends(0, 1, 2)
    flight = left(ends, three)
    assert not ends.answered(flight, refused(Code.MESSAGE_ILLEGAL, 1))
    error = error_of(three.futures[1])
    assert error.code == Code.MESSAGE_ILLEGAL
    assert error.definite
    again = flight.lane.take_run()
    assert again.messages == [three.messages[0], three.messages[2]]
    assert (again.tries, again.retries, list(again.call_ids)) == (1, 0, [0, 2])
    assert (ends.backlog.calls, ends.backlog.bytes) == (2, 2 * (SIZE + CALL_BYTES))


@pytest.mark.parametrize(("bad_record", "whole"), [(-1, False), (2, False), (1, True)])
async def test_a_run_without_a_record_at_fault_and_a_batch_fail_as_a_whole(bad_record: int, whole: bool) -> None:
    ends, both = outcomes(), sends(0, 1, whole=whole)
    flight = left(ends, both)
    assert not ends.answered(flight, refused(Code.MESSAGE_ILLEGAL, bad_record))
    assert [error_of(future).code for future in both.futures] == [Code.MESSAGE_ILLEGAL] * 2
    assert not flight.lane.waiting
    assert ends.backlog.calls == 0


async def test_an_answer_without_the_places_of_all_may_have_stored_them() -> None:
    ends, both = outcomes(retry_times_when_send_failed=0), sends(0, 1)
    assert not ends.answered(left(ends, both), stored(1))
    assert not error_of(both.futures[0]).definite
    assert "without the places of 2 messages" in str(error_of(both.futures[1]))


async def test_a_lost_run_goes_again_as_often_as_set_and_what_may_be_stored_is_never_definite_again() -> None:
    ends, one = outcomes(retry_times_when_send_failed=1), sends(0)
    flight = left(ends, one)
    again = ends.lost(flight, LOST)
    assert again.messages == one.messages
    assert (again.retries, again.indefinite) == (1, True)
    assert ends.backlog.calls == 1
    flight.sends = again
    again.tries += 1
    assert not ends.lost(flight, NOT_LEFT)
    error = error_of(one.futures[0])
    assert not error.definite
    assert one.messages[0].message_id in str(error)
    assert "tries: 2" in str(error)
    assert ends.backlog.calls == 0


@pytest.mark.parametrize("why", ["pinned", "out of time", "oneway"])
async def test_what_may_have_one_try_only_does_not_go_again(why: str, caplog: pytest.LogCaptureFixture) -> None:
    ends = outcomes()
    one = {"pinned": pinned(0), "out of time": sends(0, left_s=-1), "oneway": sends(0, waited=False, mode=ONEWAY)}[why]
    with caplog.at_level(logging.WARNING, "dejamq"):
        assert not ends.lost(left(ends, one), NOT_LEFT)
    assert ends.backlog.calls == 0
    if why == "oneway":
        assert "oneway_failed group=g messages=1" in caplog.text
    else:
        assert error_of(one.futures[0]).definite


async def test_a_send_that_its_program_cancelled_is_left_alone_and_counts_no_more() -> None:
    ends, both = outcomes(), sends(0, 1)
    flight, gone = left(ends, both), both.futures[0]
    assert gone is not None
    gone.cancel()
    assert ends.lost(flight, LOST).messages == both.messages[1:]
    assert gone.cancelled()
    ended, _ = both.divide(both.ended)
    assert not ends.answered(left(ends, ended), stored(1))
    assert gone.cancelled()
    assert ends.backlog.calls == 1


async def test_what_is_less_durable_than_asked_goes_again_and_keeps_its_place_if_nobody_takes_it() -> None:
    ends = outcomes(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=1)
    both = sends(0)
    both.extend(pinned(1))
    again = ends.answered(left(ends, both), stored(2, Code.FLUSH_DISK_TIMEOUT))
    assert again.messages == both.messages[:1]
    assert result_of(both.futures[1]).status is SendStatus.FLUSH_DISK_TIMEOUT
    assert ends.backlog.calls == 1
    assert not ends.failed(again, SendTimeout("b does not answer", definite=False))
    result = result_of(both.futures[0])
    assert (result.status, result.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 7)
    assert ends.backlog.calls == 0


@pytest.mark.parametrize("detector", [False, True])
async def test_a_broker_that_refuses_is_unreachable_and_one_that_is_away_only_where_somebody_looks_for_it(
    detector: bool,
) -> None:
    faults = FaultTable()
    ends = outcomes(faults=faults, send_latency_enable=True, start_detector_enable=detector)
    ends.lost(left(ends, sends(0)), LOST)
    assert faults.reachable("a") is not detector
    assert not faults.available("a", monotonic() * 1000)
    ends.answered(left(ends, sends(1)), refused(Code.SYSTEM_ERROR))
    assert not faults.reachable("a")
    ends.answered(left(ends, sends(2)), stored(1))
    assert faults.reachable("a")


class Watching:
    """A hook that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, object]] = []

    def before_send(self, context: SendContext) -> None:
        self.told.append(("before", context.queue.topic, context.attempt))

    def after_send(self, context: SendContext) -> None:
        self.told.append(("after", context.message.topic, context.error or context.result))


async def test_hooks_are_told_of_each_try_in_the_programs_own_names() -> None:
    hook, hooks = Watching(), SendHooks()
    hooks.add(hook)
    ends, one = outcomes(hooks=hooks, namespace="eu"), sends(0)
    one.messages, one.queues = [Message("eu%t", b"x")], [MessageQueue("eu%t", "a", 0)]
    again = ends.lost(left(ends, one), LOST)
    ends.answered(left(ends, again), stored(1))
    result = result_of(one.futures[0])
    assert hook.told == [("before", "t", 1), ("after", "t", LOST), ("before", "t", 2), ("after", "t", result)]
    assert result.queue == MessageQueue("t", "a", 0)
