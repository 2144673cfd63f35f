"""What an answer or a failure means for each call of a run: every call ends once, or goes again."""

import asyncio
import logging
from time import monotonic
from typing import Any

import numpy as np
import pytest
from dejamq import Message, MessageQueue
from dejamq.backlog import CALL_BYTES
from dejamq.batching import Flight, Lane
from dejamq.call import PLAIN, Call
from dejamq.encoding import template
from dejamq.fault_strategy import FaultTable
from dejamq.message import SendResult, SendStatus
from dejamq.producer_config import ProducerConfig
from dejamq.send_hooks import SendContext, SendHooks
from dejamq.send_journal import SendJournal
from dejamq.send_outcomes import Outcomes
from dejamq.sends import Sends
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, SendTimeout
from dejamq_proto.journal import Journal, Level
from dejamq_proto.wire import SendRunResult

SIZE = 100
QUEUE = MessageQueue("t", "a", 0)
LOST = BrokerUnavailable("a ended the stream", definite=False)
NOT_LEFT = BrokerUnavailable("a does not listen", definite=True)


def a_call(number: int, **more: Any) -> Call:
    future = asyncio.get_running_loop().create_future() if more.pop("waited", True) else None
    deadline = monotonic() + more.pop("left_s", 60)
    message, common = Message("t", b"body %d" % number), template("t", 0, None)
    return Call(message, common, b"\x02", PLAIN, number, deadline, SIZE, future, queue=QUEUE, **more)


def outcomes(*, hooks: SendHooks | None = None, faults: FaultTable | None = None, **settings: Any) -> Outcomes:
    journal = Journal(None, role="producer", process="p", boot_id="b", level=Level.OFF)
    config = ProducerConfig(**settings)
    return Outcomes(config, "g", SendJournal(journal, "g", None), hooks or SendHooks(), faults)


def left(ends: Outcomes, *calls: Call) -> Flight:
    """A run of these that is under way."""
    ends.backlog.take(len(calls), SIZE * len(calls))
    for call in calls:
        call.tries += 1
    sends = Sends.of(list(calls))
    sizes = np.array([SIZE] * len(calls), "<u4")
    flight = Flight(Lane("a"), sends, sizes, 1, "h:1", min(sends.deadlines), departed=monotonic())
    ends.leaving(flight)
    return flight


def stored(count: int, code: Code = Code.SUCCESS) -> SendRunResult:
    return SendRunResult(
        code=code, store_timestamp_ms=5, store_host="1.2.3.4:5", queue_offsets=np.arange(count, dtype="<u8") + 7,
        span_starts=np.array([0], "<u4"), span_log_offsets=np.array([1000], "<u8"),
    )  # fmt: skip


def refused(code: Code, bad_record: int = -1) -> SendRunResult:
    return SendRunResult(code=code, remark="no", bad_record=bad_record)


def result_of(call: Call) -> SendResult:
    assert call.future is not None
    return call.future.result()


def error_of(call: Call) -> DejamqError:
    assert call.future is not None
    error = call.future.exception()
    assert isinstance(error, DejamqError)
    return error


async def test_each_call_of_a_stored_run_gets_its_place_and_counts_no_more() -> None:
    ends, calls = outcomes(), [a_call(number) for number in range(3)]
    assert ends.answered(left(ends, *calls), stored(3)) == []
    assert [result_of(call).queue_offset for call in calls] == [7, 8, 9]
    assert [result_of(call).message_id for call in calls] == [call.message.message_id for call in calls]
    assert {result_of(call).status for call in calls} == {SendStatus.SEND_OK}
    assert (ends.backlog.calls, ends.backlog.bytes) == (0, 0)


async def test_of_a_refused_run_the_record_at_fault_fails_and_the_innocent_go_again_uncounted() -> None:
    ends, calls = outcomes(), [a_call(number) for number in range(3)]
    flight = left(ends, *calls)
    assert ends.answered(flight, refused(Code.MESSAGE_ILLEGAL, 1)) == []
    assert error_of(calls[1]).code == Code.MESSAGE_ILLEGAL
    assert error_of(calls[1]).definite
    assert flight.lane.take_run().calls == [calls[0], calls[2]]
    assert [call.retries for call in calls] == [0, 0, 0]
    assert (ends.backlog.calls, ends.backlog.bytes) == (2, 2 * (SIZE + CALL_BYTES))


@pytest.mark.parametrize(("bad_record", "batch"), [(-1, 0), (2, 0), (1, 5)])
async def test_a_run_without_a_record_at_fault_and_a_batch_fail_as_a_whole(bad_record: int, batch: int) -> None:
    ends = outcomes()
    calls = [a_call(number, batch=batch) for number in range(2)]
    flight = left(ends, *calls)
    assert ends.answered(flight, refused(Code.MESSAGE_ILLEGAL, bad_record)) == []
    assert [error_of(call).code for call in calls] == [Code.MESSAGE_ILLEGAL] * 2
    assert not flight.lane.busy
    assert ends.backlog.calls == 0


async def test_an_answer_without_the_places_of_all_may_have_stored_them() -> None:
    ends, call, other = outcomes(retry_times_when_send_failed=0), a_call(0), a_call(1)
    assert ends.answered(left(ends, call, other), stored(1)) == []
    assert not error_of(call).definite
    assert "without the places of 2 messages" in str(error_of(other))


async def test_a_lost_run_goes_again_as_often_as_set_and_what_may_be_stored_is_never_definite_again() -> None:
    ends, call = outcomes(retry_times_when_send_failed=1), a_call(0)
    flight = left(ends, call)
    assert ends.lost(flight, LOST) == [call]
    assert (call.retries, call.indefinite) == (1, True)
    assert ends.backlog.calls == 1
    call.tries += 1
    assert ends.lost(flight, NOT_LEFT) == []
    assert not error_of(call).definite
    assert call.message.message_id in str(error_of(call))
    assert "tries: 2" in str(error_of(call))
    assert ends.backlog.calls == 0


@pytest.mark.parametrize(
    "more", [{"pinned": True}, {"left_s": -1}, {"waited": False}], ids=["pinned", "out of time", "oneway"]
)
async def test_what_may_have_one_try_only_does_not_go_again(
    more: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    ends, call = outcomes(), a_call(0, **more)
    with caplog.at_level(logging.WARNING, "dejamq"):
        assert ends.lost(left(ends, call), NOT_LEFT) == []
    assert ends.backlog.calls == 0
    if call.future is None:
        assert "oneway_failed group=g messages=1" in caplog.text
    else:
        assert error_of(call).definite


async def test_a_call_that_its_program_cancelled_is_left_alone_and_counts_no_more() -> None:
    ends, gone, other = outcomes(), a_call(0), a_call(1)
    flight = left(ends, gone, other)
    assert gone.future is not None
    gone.future.cancel()
    assert ends.lost(flight, LOST) == [other]
    assert gone.future.cancelled()
    assert ends.answered(left(ends, gone), stored(1)) == []
    assert gone.future.cancelled()
    assert ends.backlog.calls == 1


async def test_what_is_less_durable_than_asked_goes_again_and_keeps_its_place_if_nobody_takes_it() -> None:
    ends = outcomes(retry_another_broker_when_not_store_ok=True, retry_times_when_send_failed=1)
    call, pinned = a_call(0), a_call(1, pinned=True)
    assert ends.answered(left(ends, call, pinned), stored(2, Code.FLUSH_DISK_TIMEOUT)) == [call]
    assert result_of(pinned).status is SendStatus.FLUSH_DISK_TIMEOUT
    assert ends.backlog.calls == 1
    assert ends.failed([call], SendTimeout("b does not answer", definite=False)) == []
    assert (result_of(call).status, result_of(call).queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 7)
    assert ends.backlog.calls == 0


@pytest.mark.parametrize("detector", [False, True])
async def test_a_broker_that_refuses_is_unreachable_and_one_that_is_away_only_where_somebody_looks_for_it(
    detector: bool,
) -> None:
    faults = FaultTable()
    ends = outcomes(faults=faults, send_latency_enable=True, start_detector_enable=detector)
    ends.lost(left(ends, a_call(0)), LOST)
    assert faults.reachable("a") is not detector
    assert not faults.available("a", monotonic() * 1000)
    ends.answered(left(ends, a_call(1)), refused(Code.SYSTEM_ERROR))
    assert not faults.reachable("a")
    ends.answered(left(ends, a_call(2)), stored(1))
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
    ends, call = outcomes(hooks=hooks, namespace="eu"), a_call(0)
    call.message = Message("eu%t", b"x")
    call.queue = MessageQueue("eu%t", "a", 0)
    assert ends.lost(left(ends, call), LOST) == [call]
    ends.answered(left(ends, call), stored(1))
    result = result_of(call)
    assert hook.told == [("before", "t", 1), ("after", "t", LOST), ("before", "t", 2), ("after", "t", result)]
    assert result.queue == MessageQueue("t", "a", 0)
