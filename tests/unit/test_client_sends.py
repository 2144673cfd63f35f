"""Sends that are nothing but their messages: kept in columns, and calls as soon as something happens to some."""

import asyncio
from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest
from dejamq import Message, MessageQueue
from dejamq.batching import Lane, build_run, take_plain_run
from dejamq.call import PLAIN, Call
from dejamq.call_ids import CallIds
from dejamq.encoding import template
from dejamq.fresh import Fresh
from dejamq.intake import Intake
from dejamq.message import SendResult, SendStatus, StoredRun
from dejamq.producer_config import ProducerConfig
from dejamq.routes import BrokerQueues, TopicRoute
from dejamq.selectors import Rotation
from dejamq.sends import Sends
from dejamq.window import MAX_RUN_RECORDS, WINDOW_RECORDS
from dejamq_proto.wire import SendRunResult
from hypothesis import given
from hypothesis import strategies as st

PLACE = StoredRun(SendRunResult(), np.zeros(3, "<u4"))
QUEUES = [MessageQueue("t", "a", number) for number in range(4)]


def bodies(sends: Sends) -> list[int]:
    """The numbers in the bodies: call ids of plain sends are theirs when they leave, whatever their order became."""
    return [int(message.body.split()[1]) for message in sends.messages]


def plain(numbers: range, *, size: int = 100, tags: bool = False, mode: str = "sync") -> Sends:
    """Sends whose call ids and bodies are these numbers, to four queues in turn."""
    sends = Sends(mode, 10.0)
    for number in numbers:
        sends.messages.append(Message("t", b"body %d" % number))
        sends.commons.append(template("t", 0, f"tag-{number % 3}" if tags else None))
        sends.sizes.append(sends.commons[-1].size + len(sends.messages[-1].body) if size == 100 else size)
        sends.futures.append(asyncio.Future())
    sends.number(CallIds(numbers.start))
    sends.queues = [QUEUES[number % 4] for number in numbers]
    return sends


def a_call(number: int) -> Call:
    message, common = Message("t", b"x"), template("t", 0, None)
    return Call(message, common, b"\x02", PLAIN, number, 10.0, 100, None, queue=QUEUES[0])


class Doors:
    """A shortcut that remembers whether it is open."""

    def __init__(self) -> None:
        self.is_open = False

    def open(self, *_: Any) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("number", [1, 12, 100])
@pytest.mark.parametrize("tags", [False, True])
async def test_plain_sends_are_the_run_that_calls_of_them_would_be(number: int, tags: bool) -> None:
    sends = plain(range(number), tags=tags)
    run = build_run(sends, group="g", default_queue_nums=4, born_ms=5)
    same = build_run(Sends.of(plain_calls(sends)), group="g", default_queue_nums=4, born_ms=5)
    assert b"".join(run.records) == b"".join(same.records)
    assert run.queues == same.queues
    for of_run, of_same in ((run.sizes, same.sizes), (run.queue_index, same.queue_index)):
        assert np.array_equal(of_run, of_same)
    assert np.array_equal(run.tags_codes, same.tags_codes)


def plain_calls(sends: Sends) -> list[Call]:
    copy = sends.pick(lambda column: column[:])
    return copy.unfold()


async def test_of_many_plain_sends_half_goes_and_at_most_850() -> None:
    waiting = deque([plain(range(200)), plain(range(200, 600))])
    assert list(take_plain_run(waiting).call_ids) == list(range(300))
    assert list(take_plain_run(waiting).call_ids) == list(range(300, 450))
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 3000, 100))
    assert list(take_plain_run(waiting).call_ids) == list(range(MAX_RUN_RECORDS))


async def test_a_full_run_ends_within_a_turn_whose_other_sends_begin_the_next_one() -> None:
    waiting = deque(plain(range(begin, begin + 256)) for begin in range(0, 2560, 256))
    runs = [take_plain_run(waiting), take_plain_run(waiting)]
    assert [call_id for run in runs for call_id in run.call_ids] == list(range(2 * MAX_RUN_RECORDS))
    assert bodies(waiting[0]) == list(waiting[0].call_ids) == list(range(2 * MAX_RUN_RECORDS, 7 * 256))


async def test_plain_sends_of_about_a_mebibyte_are_a_run_and_a_larger_one_goes_alone() -> None:
    waiting = deque([plain(range(10), size=300_000)])
    assert list(take_plain_run(waiting).call_ids) == [0, 1, 2]
    assert list(take_plain_run(waiting).call_ids) == [3, 4, 5]
    waiting = deque([plain(range(2), size=3 << 20)])
    assert list(take_plain_run(waiting).call_ids) == [0]


@pytest.mark.parametrize("turn", [20, 800])
async def test_runs_of_a_flood_to_many_queues_have_many_records_of_a_few_in_the_order_of_each(turn: int) -> None:
    queues = [MessageQueue(f"t{number % 200}", "a", number // 200) for number in range(turn)]
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 20_000, 100))
    for sends in waiting:
        sends.queues = [queues[call_id % turn] for call_id in sends.call_ids]
    left: dict[MessageQueue, list[int]] = {queue: [] for queue in queues}
    while waiting:
        run = take_plain_run(waiting)
        if len(run) == MAX_RUN_RECORDS:
            assert len(set(run.queues)) <= max(turn // 5, 20)
        for queue, number in zip(run.queues, bodies(run), strict=True):
            left[queue].append(number)
    assert [left[queue] for queue in queues] == [list(range(number, 20_000, turn)) for number in range(turn)]


async def test_what_a_program_submits_later_leaves_after_what_a_flood_put_in_another_order() -> None:
    lane, queues = Lane("a"), [MessageQueue(f"t{number}", "a", 0) for number in range(800)]
    for start in range(0, WINDOW_RECORDS + 5_000, 100):
        lane.add_plain(plain(range(start, start + 100)))
        lane.plain[-1].queues = [queues[call_id % 800] for call_id in lane.plain[-1].call_ids]
    left = [number for _ in range(WINDOW_RECORDS // MAX_RUN_RECORDS) for number in bodies(lane.take_run())]
    assert sorted(left) == list(range(WINDOW_RECORDS))
    assert left != sorted(left)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=12), st.booleans())
async def test_whatever_the_order_of_the_queues_those_of_each_stand_side_by_side_in_theirs(
    stretches: list[tuple[int, int]], in_turn: bool
) -> None:
    places = [place for place, count in stretches for _ in range(count)]
    queues = [QUEUES[number % 4 if in_turn else place] for number, place in enumerate(places)]
    sends, same = plain(range(len(queues))), plain(range(len(queues)))
    sends.queues, same.queues = queues[:], [MessageQueue(*msgspec.structs.astuple(queue)) for queue in queues]
    expected = [number for queue in dict.fromkeys(queues) for number in range(len(queues)) if queues[number] == queue]
    ordered = sends.by_queue()
    assert bodies(ordered) == expected
    assert ordered.call_ids == range(len(queues))
    calls = Sends.of(same.unfold()).by_queue()
    assert bodies(calls) == list(calls.call_ids) == expected


async def test_those_of_a_queue_keep_their_order_where_a_configuration_names_it_twice() -> None:
    route = TopicRoute("t", (BrokerQueues("a", 2, 2, 6),), {"a": {0: "127.0.0.1:1"}}, order_conf="a:2;a:2")
    lane, sends = Lane("a"), plain(range(12))
    sends.queues = Rotation(route.publish_queues(), 0).take(12, 0.0)
    lane.add_plain(sends)
    run = lane.take_run()
    left = [(queue.queue_id, number) for queue, number in zip(run.queues, bodies(run), strict=True)]
    assert left == sorted(left)
    assert {queue_id for queue_id, _ in left} == {0, 1}


async def test_results_are_given_to_those_that_still_wait() -> None:
    sends, results = plain(range(3)), [SendResult(SendStatus.SEND_OK, str(n), QUEUES[0], n, PLACE, n) for n in range(3)]
    first, second, third = sends.futures
    assert first is not None
    assert second is not None
    assert third is not None
    second.cancel()
    sends.tell(results)
    assert (first.result().message_id, second.cancelled(), third.result().message_id) == ("0", True, "2")


async def test_sends_of_another_mode_are_another_run() -> None:
    waiting = deque([plain(range(2)), plain(range(2, 4), mode="async")])
    runs = [take_plain_run(waiting), take_plain_run(waiting)]
    assert [(run.mode, list(run.call_ids)) for run in runs] == [("sync", [0, 1]), ("async", [2, 3])]


async def test_calls_and_plain_sends_to_one_broker_keep_the_order_in_which_they_came() -> None:
    lane = Lane("a")
    lane.add_plain(plain(range(4)))
    lane.add([a_call(4)])
    lane.add_plain(plain(range(5, 8)))
    assert sorted(lane.take_run().call_ids) == list(range(8))
    lane.add_plain(plain(range(4, 8)))
    lane.put_back([a_call(0)])
    assert list(lane.take_run().call_ids) == [0]
    assert list(lane.take_run().call_ids) == [4, 5, 6, 7]
    assert not lane.busy


async def test_many_plain_sends_stay_so_behind_calls_and_behind_what_was_put_back() -> None:
    lane = Lane("a")
    lane.add([a_call(0)])
    lane.add_plain(plain(range(1, 300)))
    lane.put_back([a_call(-1)])
    assert list(lane.take_run().call_ids) == [-1, 0]
    run = lane.take_run()
    assert run.calls is None
    assert sorted(run.call_ids) == list(range(1, 151))
    lane.add([a_call(300)])
    assert lane.take_run().calls is not None


async def test_a_deadline_of_what_has_left_makes_no_calls_of_what_waits() -> None:
    lane = Lane("a")
    lane.add_plain(plain(range(1)))
    lane.take_run()
    later = plain(range(1, 3))
    later.deadlines = [20.0, 20.0]
    lane.add_plain(later)
    assert lane.take_expired(15.0) == []
    assert lane.first_deadline == 20.0
    assert lane.take_run().calls is None


async def test_plain_sends_that_waited_too_long_are_taken_out_as_calls() -> None:
    lane = Lane("a")
    lane.add_plain(plain(range(3)))
    assert lane.take_expired(9.0) == []
    assert [call.call_id for call in lane.take_expired(10.0)] == [0, 1, 2]
    assert not lane.busy


async def test_sends_are_divided_by_broker_in_their_order() -> None:
    sends = plain(range(4))
    sends.queues = [MessageQueue("t", name, 0) for name in "abab"]
    assert [(name, list(part.call_ids)) for name, part in sends.by_broker()] == [("a", [0, 2]), ("b", [1, 3])]


async def test_a_call_made_of_a_send_under_way_knows_that_it_left() -> None:
    sends = plain(range(2))
    sends.leave()
    assert sends.tries == [1, 1]
    assert [call.tries for call in sends.unfold()] == [1, 1]
    sends.leave()
    assert sends.tries == [2, 2]


@pytest.mark.parametrize(
    "more",
    [
        {"keys": "k"}, {"properties": {"a": "b"}}, {"delay_level": 1}, {"sharding_key": "s"}, {"wait_store": False},
        {"message_id": "own"}, {"body": b"x" * 4096}, {"body": b""},
    ],
)  # fmt: skip
def test_a_message_with_something_of_its_own_needs_a_call(more: dict[str, Any]) -> None:
    intake = Intake(ProducerConfig())
    assert intake.plain(Message(**{"topic": "t", "body": b"x", **more})) is None
    assert Intake(ProducerConfig(namespace="n")).plain(Message("t", b"x")) is None


def test_what_messages_have_in_common_is_found_whatever_came_before() -> None:
    intake = Intake(ProducerConfig())
    for topic, flag, tags in (("t", 0, None), ("u", 0, None), ("u", 1, None), ("u", 1, "a"), ("t", 0, None)):
        assert intake.plain(Message(topic, b"x", flag=flag, tags=tags)) is template(topic, flag, tags)


async def test_what_one_turn_submitted_is_calls_in_its_order_where_some_are_calls() -> None:
    doors: Any = Doors()
    fresh = Fresh(CallIds(7), 3.0, doors)
    for each in (plain(range(2)), a_call(1), plain(range(1))):
        if isinstance(each, Call):
            fresh.add([each])
            assert not doors.is_open
            continue
        sends = fresh.begin("sync")
        assert fresh.plain is sends
        assert doors.is_open
        sends.extend(each)
    taken = fresh.take()
    assert not fresh
    assert fresh.plain is None
    assert not doors.is_open
    assert fresh.as_plain(taken) is None
    assert [call.call_id for call in fresh.as_calls(taken)] == [7, 8, 1, 9]


async def test_what_one_turn_submitted_stays_plain_where_all_is() -> None:
    doors: Any = Doors()
    fresh = Fresh(CallIds(7), 3.0, doors)
    sends = fresh.begin("sync")
    sends.extend(plain(range(2)))
    taken = fresh.take()
    fresh.put_back(taken)
    assert fresh.as_plain(fresh.take()) == [sends]
    assert list(sends.call_ids) == [7, 8]
    assert sends.deadlines == [sends.deadline] * 2


async def test_whatever_is_done_to_sends_is_done_to_all_their_columns() -> None:
    columns = ("messages", "commons", "sizes", "futures", "queues", "call_ids", "deadlines")

    def rows(sends: Sends) -> list[tuple[Any, ...]]:
        return list(zip(*(getattr(sends, name) for name in columns), strict=True))

    one, other = plain(range(4), tags=True), plain(range(4, 6), tags=True)
    expected = rows(one) + rows(other)
    one.extend(other)
    assert rows(one) == expected
    assert rows(one.pick(lambda column: column[::2])) == expected[::2]
    assert rows(one.cut(4)) == expected[:4]
    assert rows(one) == expected[4:]
    assert len(one.unfold()) == 2
