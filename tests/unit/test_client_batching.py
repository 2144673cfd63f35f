"""How waiting sends are cut into runs, how queues are chosen, and what is retried."""

from collections import deque
from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest
from dejamq import BrokerUnavailable, Code, DejamqError, Message, MessageQueue, SendTimeout
from dejamq.sending.batching import MAX_RUN_RECORDS, UNDIVIDED, BrokerBacklog, build_run, take_run
from dejamq.sending.encoding import UNIQUE_NAME, template
from dejamq.sending.intake import Intake
from dejamq.sending.queue_choice import Rotation
from dejamq.sending.retry import RetryRule, final_error, outcome_of
from dejamq.sending.run_records import FEW
from dejamq.sending.sends import NO_WAIT, ONEWAY, PLAIN, REWRITE, Extra, Sends
from dejamq.values.producer_config import ProducerConfig
from dejamq.values.selectors import by_hash
from dejamq_proto.codes import SEND_RETRIABLE, error_for

A0, A1, B0 = MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0)


def single(number: int = 0, *, kind: int = PLAIN, size: int = 100, deadline: float = 10.0) -> Sends:
    """A oneway."""
    return Sends(
        ONEWAY, 0.0, [Message("t", b"x")], [template("t", 0, None)], [size], [None], [A0], range(number, number + 1),
        [deadline], kind=kind,
    )  # fmt: skip


def joined(sends: Iterable[Sends]) -> Sends:
    first, *others = sends
    for more in others:
        first.extend(more)
    return first


def numbers(sends: Sends) -> list[int]:
    return list(sends.call_ids)


def test_a_few_sends_are_one_run_in_their_order() -> None:
    waiting = deque(map(single, range(UNDIVIDED)))
    assert numbers(take_run(waiting)) == list(range(UNDIVIDED))
    assert not waiting


def test_of_many_sends_half_goes_so_that_the_next_run_fills_meanwhile() -> None:
    waiting = deque(map(single, range(600)))
    assert len(take_run(waiting)) == 300
    assert len(take_run(waiting)) == 150


def test_a_run_has_at_most_850_records() -> None:
    waiting = deque(map(single, range(10_000)))
    assert len(take_run(waiting)) == MAX_RUN_RECORDS


def test_a_run_has_about_a_mebibyte_but_one_larger_message_goes_alone() -> None:
    waiting = deque(single(number, size=300_000) for number in range(10))
    assert len(take_run(waiting)) == 3
    waiting = deque([single(0, size=3 << 20), single(1)])
    assert numbers(take_run(waiting)) == [0]


def test_kinds_do_not_mix_and_keep_their_order() -> None:
    kinds = [PLAIN, PLAIN, REWRITE, NO_WAIT, PLAIN]
    waiting = deque(single(number, kind=kind) for number, kind in enumerate(kinds))
    runs = []
    while waiting:
        runs.append(numbers(take_run(waiting)))
    assert runs == [[0, 1], [2], [3], [4]]


def batch(numbers: range) -> Sends:
    sends = joined(map(single, numbers))
    sends.whole = True
    return sends


def test_a_batch_goes_whole_and_alone_however_much_waits() -> None:
    waiting = deque([single(0), batch(range(1, 40)), batch(range(40, 50))])
    assert numbers(take_run(waiting)) == [0]
    assert numbers(take_run(waiting)) == list(range(1, 40))
    assert numbers(take_run(waiting)) == list(range(40, 50))


def test_sends_put_back_come_first_in_their_order() -> None:
    lane = BrokerBacklog("a")
    lane.add(joined([single(3), single(4)]))
    lane.put_back(joined([single(1), single(2)]))
    lane.put_back(Sends())
    assert numbers(lane.take_run()) == [1, 2, 3, 4]


def test_a_run_has_the_sends_of_each_queue_side_by_side_and_in_order() -> None:
    lane = BrokerBacklog("a")
    for number in range(9):
        one = again(number)
        one.queues = [(A1, A0, MessageQueue("u", "a", 1))[number % 3]]
        lane.add(one)
    sends = lane.take_run()
    assert numbers(sends) == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    run = build_run(sends, group="g", default_queue_nums=4)
    assert [run.queues[number] for number in run.queue_index.tolist()] == [
        (queue.topic, queue.queue_id) for queue in sends.queues
    ]


def again(number: int) -> Sends:
    """One that keeps its number in any order, with a queue of its program's own making."""
    one = single(number)
    one.tries, one.extras = 1, [Extra(one.commons[0].before, one.commons[0].rest)]
    return one


def test_expired_sends_are_taken_out_and_the_others_stay() -> None:
    lane = BrokerBacklog("a")
    for number, deadline in enumerate((5.0, 1.0, 3.0)):
        lane.add(single(number, deadline=deadline))
    assert lane.take_expired(0.5) == []
    assert [numbers(sends) for sends in lane.take_expired(3.0)] == [[1], [2]]
    assert lane.first_deadline == 5.0
    assert numbers(lane.take_run()) == [0]


def test_a_run_on_the_wire_names_each_queue_once() -> None:
    sends = joined(map(single, range(4)))
    sends.queues = [A1, A0, A1, A0]
    run = build_run(sends, group="g", default_queue_nums=4)
    assert run.queues == [("t", 1), ("t", 0)]
    assert run.queue_index.tolist() == [0, 1, 0, 1]
    assert len(run.tags_codes) == 0
    assert np.array_equal(run.sizes, [len(record) for record in records_of(sends)])


def records_of(sends: Sends) -> list[bytes]:
    """Encoded one by one."""
    rows = zip(sends.messages, sends.commons, sends.each_extra, sends.queues, strict=True)
    return [
        common.record.encode(
            queue.queue_id, 5, (extra and extra.packed) or message.body,
            UNIQUE_NAME + message.message_id.encode() + (extra or common).rest,
        )
        for message, common, extra, queue in rows
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 100])
def test_records_encoded_together_are_those_encoded_one_by_one(count: int) -> None:
    random, intake = Random(count), Intake(ProducerConfig())
    singles = []
    for number in range(count):
        body = random.randbytes(random.randrange(1, 300)) if number % 5 else b"again " * 1000
        more: dict[str, Any] = {"tags": "a", "keys": "k", "flag": 7} if number % 3 else {}
        more |= {} if number % 7 else {"message_id": f"of my own, ü{number}"}
        singles.append(intake.single(Message("t" * (1 + number % 2), body, **more), None))
        singles[-1].queues = [MessageQueue("t", "a", number % 4)]
    sends = joined(singles)
    run = build_run(sends, group="g", default_queue_nums=4, born_ms=5)
    records = records_of(sends)
    assert b"".join(run.records) == b"".join(records)
    assert run.sizes.tolist() == [len(record) for record in records] == sends.sizes


@pytest.mark.parametrize("turns", [[0, 1, 2, 3], [3, 1], [0, 1, 1], [2], [0, 1, 0, 2]])
def test_the_sends_of_a_queue_stay_in_order_whatever_turns_the_queues_take(turns: list[int]) -> None:
    lane = BrokerBacklog("a")
    for number in range(30):
        one = again(number)
        one.queues = [MessageQueue("t", "a", turns[number % len(turns)])]
        lane.add(one)
    while lane.waiting:
        sends = lane.take_run()
        queues = list(dict.fromkeys(sends.queues))
        places = [(queues.index(queue), number) for queue, number in zip(sends.queues, sends.call_ids, strict=True)]
        assert places == sorted(places)


def test_a_run_to_one_queue_has_no_index_and_one_tag_is_enough_for_tags_codes() -> None:
    sends = joined([single(0), single(1)])
    sends.commons[1] = template("t", 0, "paid")
    run = build_run(sends, group="g", default_queue_nums=4)
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
    assert RULE.again(awaited(), error, 1.0) == [again]


def test_a_timeout_that_used_up_the_budget_is_not_retried() -> None:
    assert RULE.again(awaited(), SendTimeout("late"), 10.0) == [False]


def test_only_the_chosen_refusals_are_retried_and_a_lost_connection_always() -> None:
    rule = RetryRule(2, frozenset({Code.INVALID_PARAMETER}))
    assert rule.again(awaited(), error_for(Code.INVALID_PARAMETER, ""), 1.0) == [True]
    assert rule.again(awaited(), error_for(Code.SYSTEM_BUSY, ""), 1.0) == [False]
    assert rule.again(awaited(), LOST, 1.0) == [True]


@pytest.mark.parametrize(("mode", "again"), [("sync", True), ("batch", True), ("async", False), ("request", False)])
def test_sends_that_nobody_waits_for_and_requests_have_a_number_of_tries_of_their_own(mode: str, again: bool) -> None:
    rule, failed = RetryRule(2, SEND_RETRIABLE, async_times=0), awaited(mode)
    assert rule.again(failed, LOST, 1.0) == [again]
    assert RULE.again(failed, LOST, 1.0) == [True]


def awaited(mode: str = "sync") -> Sends:
    failed = single()
    failed.mode = mode
    failed.futures = [object()]  # type: ignore[list-item]  # somebody waits; who does not matter here
    return failed


def test_no_retry_beyond_the_times_the_budget_or_the_chosen_queue_nor_for_a_oneway() -> None:
    failed = awaited()
    failed.retries = 2
    assert RULE.again(failed, LOST, 1.0) == [False]
    failed.retries = 0
    assert RULE.again(failed, LOST, 10.0) == [False]
    failed.extras = [Extra(b"", b"", where=A0)]
    assert RULE.again(failed, LOST, 1.0) == [False]
    assert RULE.again(single(), LOST, 1.0) == [False]


def test_the_last_error_is_definite_only_if_all_tries_were() -> None:
    failed = single()
    failed.indefinite = True
    refusal = error_for(Code.SERVICE_NOT_AVAILABLE, "disk full")
    assert refusal.definite
    assert not final_error("1", failed, refusal).definite
    assert final_error("1", single(), refusal).definite


def test_outcomes_are_named_for_the_journal() -> None:
    assert outcome_of(LOST) == "connection_lost"
    assert outcome_of(BrokerUnavailable("no", definite=True)) == "connect_failed"
    assert outcome_of(SendTimeout("late")) == "timeout"
    assert outcome_of(error_for(Code.SYSTEM_BUSY, "")) == "refused"
