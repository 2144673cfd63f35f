"""How waiting calls are cut into runs, how queues are chosen, and what is retried."""

from collections import deque
from random import Random
from typing import Any

import numpy as np
import pytest
from dejamq import BrokerUnavailable, Code, DejamqError, Message, MessageQueue, SendTimeout
from dejamq.batching import UNDIVIDED, Lane, build_run, take_run
from dejamq.call import NO_WAIT, PLAIN, REWRITE, Call
from dejamq.encoding import template
from dejamq.intake import Intake
from dejamq.producer_config import ProducerConfig
from dejamq.run_records import FEW
from dejamq.selectors import Rotation, by_hash
from dejamq.send_retry import RetryRule, final_error, outcome_of
from dejamq.sends import Sends
from dejamq.window import MAX_RUN_RECORDS
from dejamq_proto.codes import SEND_RETRIABLE, error_for

A0, A1, B0 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)


def call(number: int = 0, *, kind: int = PLAIN, size: int = 100, batch: int = 0, deadline: float = 10.0) -> Call:
    return Call(
        Message("t", b"x"), template("t", 0, None), b"\x02", kind, number, deadline, size, None, queue=A0, batch=batch,
    )  # fmt: skip


def numbers(calls: list[Call]) -> list[int]:
    return [each.call_id for each in calls]


def test_a_few_calls_are_one_run_in_their_order() -> None:
    waiting = deque(map(call, range(UNDIVIDED)))
    assert numbers(take_run(waiting)) == list(range(UNDIVIDED))
    assert not waiting


def test_of_many_calls_half_goes_so_that_the_next_run_fills_meanwhile() -> None:
    waiting = deque(map(call, range(600)))
    assert len(take_run(waiting)) == 300
    assert len(take_run(waiting)) == 150


def test_a_run_has_at_most_850_records() -> None:
    waiting = deque(map(call, range(10_000)))
    assert len(take_run(waiting)) == MAX_RUN_RECORDS


def test_a_run_has_about_a_mebibyte_but_one_larger_message_goes_alone() -> None:
    waiting = deque(call(number, size=300_000) for number in range(10))
    assert len(take_run(waiting)) == 3
    waiting = deque([call(0, size=3 << 20), call(1)])
    assert numbers(take_run(waiting)) == [0]


def test_kinds_do_not_mix_and_keep_their_order() -> None:
    kinds = [PLAIN, PLAIN, REWRITE, NO_WAIT, PLAIN]
    waiting = deque(call(number, kind=kind) for number, kind in enumerate(kinds))
    runs = []
    while waiting:
        runs.append(numbers(take_run(waiting)))
    assert runs == [[0, 1], [2], [3], [4]]


def test_a_batch_goes_whole_and_alone_however_much_waits() -> None:
    waiting = deque([call(0), *(call(n, batch=1) for n in range(1, 40)), *(call(n, batch=2) for n in range(40, 50))])
    assert numbers(take_run(waiting)) == [0]
    assert numbers(take_run(waiting)) == list(range(1, 40))
    assert numbers(take_run(waiting)) == list(range(40, 50))


def test_calls_put_back_come_first_in_their_order() -> None:
    lane = Lane("a")
    lane.add([call(3), call(4)])
    lane.put_back([call(1), call(2)])
    lane.put_back([])
    assert numbers(lane.take_run().unfold()) == [1, 2, 3, 4]


def test_a_run_has_the_calls_of_each_queue_side_by_side_and_in_order() -> None:
    lane = Lane("a")
    for number in range(9):
        each = call(number)
        each.queue = (A1, A0, MessageQueue("u", "a", 1))[number % 3]
        lane.add([each])
    calls = lane.take_run().unfold()
    assert numbers(calls) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    run = build_run(Sends.of(calls), group="g", default_queue_nums=4)
    assert [run.queues[number] for number in run.queue_index.tolist()] == [
        (each.queue.topic, each.queue.queue_id) for each in calls if each.queue
    ]


def test_expired_calls_are_taken_out_and_the_others_stay() -> None:
    lane = Lane("a")
    for number, deadline in enumerate((5.0, 1.0, 3.0)):
        lane.add([call(number, deadline=deadline)])
    assert lane.take_expired(0.5) == []
    assert numbers(lane.take_expired(3.0)) == [1, 2]
    assert lane.first_deadline == 5.0
    assert numbers(lane.take_run().unfold()) == [0]


def test_a_run_on_the_wire_names_each_queue_once() -> None:
    calls = [call(number) for number in range(4)]
    for each, queue in zip(calls, (A1, A0, A1, A0), strict=True):
        each.queue = queue
    run = build_run(Sends.of(calls), group="g", default_queue_nums=4)
    assert run.queues == [("t", 1), ("t", 0)]
    assert run.queue_index.tolist() == [0, 1, 0, 1]
    assert len(run.tags_codes) == 0
    assert np.array_equal(run.sizes, [len(one_record(each)) for each in calls])


def one_record(each: Call) -> bytes:
    assert each.queue is not None
    return each.common.record.encode(each.queue.queue_id, 5, each.message.body, each.properties)


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 100])
def test_records_encoded_together_are_those_encoded_one_by_one(count: int) -> None:
    random, intake = Random(count), Intake(ProducerConfig())
    calls = []
    for number in range(count):
        body = random.randbytes(random.randrange(1, 300)) if number % 5 else b"again " * 1000
        more: dict[str, Any] = {"tags": "a", "keys": "k", "flag": 7} if number % 3 else {}
        more |= {} if number % 7 else {"message_id": f"of my own, ü{number}"}
        calls.append(intake.call(Message("t" * (1 + number % 2), body, **more), None))
        calls[-1].queue = MessageQueue("t", "a", number % 4)
    run = build_run(Sends.of(calls), group="g", default_queue_nums=4, born_ms=5)
    records = [
        each.common.record.encode(number % 4, 5, each.packed or each.message.body, each.properties)
        for number, each in enumerate(calls)
    ]
    assert b"".join(run.records) == b"".join(records)
    assert run.sizes.tolist() == [len(record) for record in records] == [each.size for each in calls]


@pytest.mark.parametrize("turns", [[0, 1, 2, 3], [3, 1], [0, 1, 1], [2], [0, 1, 0, 2]])
def test_the_calls_of_a_queue_stay_in_order_whatever_turns_the_queues_take(turns: list[int]) -> None:
    lane = Lane("a")
    for number in range(30):
        each = call(number)
        each.queue = MessageQueue("t", "a", turns[number % len(turns)])
        lane.add([each])
    while calls := lane.take_run().unfold():
        queues = list(dict.fromkeys(each.queue for each in calls))
        places = [(queues.index(each.queue), each.call_id) for each in calls]
        assert places == sorted(places)


def test_a_run_to_one_queue_has_no_index_and_one_tag_is_enough_for_tags_codes() -> None:
    calls = [call(0), call(1, kind=PLAIN)]
    calls[1].common = template("t", 0, "paid")
    run = build_run(Sends.of(calls), group="g", default_queue_nums=4)
    assert len(run.queue_index) == 0
    assert run.tags_codes.tolist() == [0, template("t", 0, "paid").tags_code]


def test_rotation_takes_each_queue_in_turn() -> None:
    rotation = Rotation([A0, A1, B0], start=1)
    assert [rotation.next() for _ in range(4)] == [A1, B0, A0, A1]


def test_rotation_avoids_the_failed_broker_where_there_is_another() -> None:
    rotation = Rotation([A0, A1, B0])
    assert {rotation.next_avoiding("a") for _ in range(5)} == {B0}
    assert Rotation([A0, A1], start=0).next_avoiding("a") in (A0, A1)


def test_a_sharding_key_has_one_queue() -> None:
    queues = (A0, A1, B0)
    assert by_hash(queues, "user-1") == by_hash(queues, "user-1")
    assert {by_hash(queues, f"user-{n}") for n in range(50)} == set(queues)


LOST = BrokerUnavailable("lost", definite=False)
RULE = RetryRule(2, SEND_RETRIABLE)


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (LOST, True),
        (error_for(Code.SYSTEM_BUSY, ""), True),
        (error_for(Code.TOPIC_NOT_EXIST, ""), True),
        (SendTimeout("the try was given a part of the budget only"), True),
        (error_for(Code.MESSAGE_ILLEGAL, ""), False),
        (error_for(Code.INVALID_PARAMETER, ""), False),
    ],
)
def test_what_another_broker_may_do_better_is_retried(error: DejamqError, again: bool) -> None:
    assert RULE.again(waiting_call(), error, 1.0) is again


def test_a_timeout_that_used_up_the_budget_is_not_retried() -> None:
    assert not RULE.again(waiting_call(), SendTimeout("late"), 10.0)


def test_only_the_chosen_refusals_are_retried_and_a_lost_connection_always() -> None:
    rule = RetryRule(2, frozenset({Code.INVALID_PARAMETER}))
    assert rule.again(waiting_call(), error_for(Code.INVALID_PARAMETER, ""), 1.0)
    assert not rule.again(waiting_call(), error_for(Code.SYSTEM_BUSY, ""), 1.0)
    assert rule.again(waiting_call(), LOST, 1.0)


@pytest.mark.parametrize(("mode", "again"), [("sync", True), ("batch", True), ("async", False), ("request", False)])
def test_calls_that_nobody_waits_for_and_requests_have_a_number_of_tries_of_their_own(mode: str, again: bool) -> None:
    rule, failed = RetryRule(2, SEND_RETRIABLE, async_times=0), waiting_call()
    failed.mode = mode
    assert rule.again(failed, LOST, 1.0) is again
    assert RULE.again(failed, LOST, 1.0)


def waiting_call() -> Call:
    failed = call()
    failed.future = object()  # type: ignore[assignment]  # somebody waits; who does not matter here
    return failed


def test_no_retry_beyond_the_times_the_budget_or_the_chosen_queue_nor_for_a_oneway() -> None:
    failed = waiting_call()
    failed.retries = 2
    assert not RULE.again(failed, LOST, 1.0)
    failed.retries = 0
    assert not RULE.again(failed, LOST, 10.0)
    failed.pinned = True
    assert not RULE.again(failed, LOST, 1.0)
    assert not RULE.again(call(), LOST, 1.0)


def test_the_last_error_is_definite_only_if_all_tries_were() -> None:
    failed = call()
    failed.indefinite = True
    refusal = error_for(Code.SERVICE_NOT_AVAILABLE, "disk full")
    assert refusal.definite
    assert not final_error(failed, refusal).definite
    assert final_error(call(), refusal).definite


def test_outcomes_are_named_for_the_journal() -> None:
    assert outcome_of(LOST) == "connection_lost"
    assert outcome_of(BrokerUnavailable("no", definite=True)) == "connect_failed"
    assert outcome_of(SendTimeout("late")) == "timeout"
    assert outcome_of(error_for(Code.SYSTEM_BUSY, "")) == "refused"
