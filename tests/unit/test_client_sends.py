"""Sends that wait or travel together: kept in columns, whatever happens to some of them."""

import asyncio
from collections import deque
from typing import Any

import msgspec
import numpy as np
import pytest
from dejamq import Message, MessageQueue
from dejamq.native import Permutation
from dejamq.net.routes import BrokerQueues, TopicRoute
from dejamq.sending import batching as batching_module
from dejamq.sending import sends as sends_module
from dejamq.sending.batching import MAX_RUN_RECORDS, BrokerBacklog, build_run, take_run
from dejamq.sending.call_ids import CallIds
from dejamq.sending.encoding import template
from dejamq.sending.intake import Intake
from dejamq.sending.queue_choice import WINDOW_RECORDS, Rotation
from dejamq.sending.sends import NO_WAIT, PLAIN, Extra, Sends
from dejamq.sending.submitted import Fresh
from dejamq.values.message import SendResult, SendStatus, StoredRun
from dejamq.values.producer_config import ProducerConfig
from dejamq_proto.wire.messages import SendRunResult
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


def special(number: int, *, mode: str = "sync") -> Sends:
    """One with a key, numbered as those of ``plain``, to the first queue."""
    intake = Intake(ProducerConfig())
    sends = intake.single(Message("t", b"body %d" % number, keys="k"), asyncio.Future(), None, mode)
    sends.call_ids, sends.queues = range(number, number + 1), QUEUES[:1]
    return sends


def join(fresh: Fresh, number: int, *, mode: str = "sync", wait_store: bool = True) -> None:
    """Submit one that is not plain."""
    message = Message("t", b"body %d" % number, keys="k", wait_store=wait_store)
    Intake(ProducerConfig()).single(
        message, asyncio.Future(), None, mode, columns=lambda mode, kind, _: fresh.columns(mode, kind)
    )


def without_queues(sends: Sends) -> Sends:
    sends.queues = []
    return sends


class Doors:
    """A shortcut that remembers whether it is open."""

    def __init__(self) -> None:
        self.is_open = False
        self.begin: Any = None

    def open(self, *arguments: Any) -> None:
        self.is_open = True
        self.begin = arguments[-1]

    def close(self) -> None:
        self.is_open = False


@pytest.mark.parametrize("number", [1, 12, 100])
@pytest.mark.parametrize("tags", [False, True])
async def test_sends_are_the_same_run_whether_or_not_something_is_told_of_each(number: int, tags: bool) -> None:
    sends = plain(range(number), tags=tags)
    each = sends.pick(lambda column: column[:])
    each.extras = [Extra(common.before, common.rest) for common in each.commons]
    run = build_run(sends, group="g", default_queue_nums=4, born_ms=5)
    same = build_run(each, group="g", default_queue_nums=4, born_ms=5)
    assert b"".join(run.records) == b"".join(same.records)
    assert run.queues == same.queues
    for of_run, of_same in ((run.sizes, same.sizes), (run.queue_index, same.queue_index)):
        assert np.array_equal(of_run, of_same)
    assert np.array_equal(run.tags_codes, same.tags_codes)


async def test_of_many_plain_sends_half_goes_and_at_most_850() -> None:
    waiting = deque([plain(range(200)), plain(range(200, 600))])
    assert list(take_run(waiting).call_ids) == list(range(300))
    assert list(take_run(waiting).call_ids) == list(range(300, 450))
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 3000, 100))
    assert list(take_run(waiting).call_ids) == list(range(MAX_RUN_RECORDS))


async def test_a_full_run_ends_within_a_turn_whose_other_sends_begin_the_next_one() -> None:
    waiting = deque(plain(range(begin, begin + 256)) for begin in range(0, 2560, 256))
    runs = [take_run(waiting), take_run(waiting)]
    assert [call_id for run in runs for call_id in run.call_ids] == list(range(2 * MAX_RUN_RECORDS))
    assert bodies(waiting[0]) == list(waiting[0].call_ids) == list(range(2 * MAX_RUN_RECORDS, 7 * 256))


async def test_plain_sends_of_about_a_mebibyte_are_a_run_and_a_larger_one_goes_alone() -> None:
    waiting = deque([plain(range(10), size=300_000)])
    assert list(take_run(waiting).call_ids) == [0, 1, 2]
    assert list(take_run(waiting).call_ids) == [3, 4, 5]
    waiting = deque([plain(range(2), size=3 << 20)])
    assert list(take_run(waiting).call_ids) == [0]


@pytest.mark.parametrize("turn", [20, 800])
async def test_runs_of_a_flood_to_many_queues_have_many_records_of_a_few_in_the_order_of_each(turn: int) -> None:
    queues = [MessageQueue(f"t{number % 200}", "a", number // 200) for number in range(turn)]
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 20_000, 100))
    for sends in waiting:
        sends.queues = [queues[call_id % turn] for call_id in sends.call_ids]
    left: dict[MessageQueue, list[int]] = {queue: [] for queue in queues}
    while waiting:
        run = take_run(waiting)
        if len(run) == MAX_RUN_RECORDS:
            assert len(set(run.queues)) <= max(turn // 5, 20)
        for queue, number in zip(run.queues, bodies(run), strict=True):
            left[queue].append(number)
    assert [left[queue] for queue in queues] == [list(range(number, 20_000, turn)) for number in range(turn)]


async def test_what_a_program_submits_later_leaves_after_what_a_flood_put_in_another_order() -> None:
    lane, queues = BrokerBacklog("a"), [MessageQueue(f"t{number}", "a", 0) for number in range(800)]
    for start in range(0, WINDOW_RECORDS + 5_000, 100):
        lane.add(plain(range(start, start + 100)))
        lane.waiting[-1].queues = [queues[call_id % 800] for call_id in lane.waiting[-1].call_ids]
    left = [number for _ in range(WINDOW_RECORDS // MAX_RUN_RECORDS) for number in bodies(lane.take_run())]
    assert sorted(left) == list(range(WINDOW_RECORDS))
    assert left != sorted(left)


class Unlucky:
    """An order that has no memory left for one of its columns."""

    def __init__(self, queues: list[MessageQueue], calls: int) -> None:
        self._order, self._calls = Permutation(queues), calls

    def deal(self, columns: list[list[Any]], ends: list[int]) -> list[list[Any]]:
        self._calls -= 1
        if not self._calls:
            raise MemoryError
        return self._order.deal(columns, ends)


@pytest.mark.parametrize("calls", [1, 2, 4, 6])
@pytest.mark.parametrize(("count", "topics"), [(100, 4), (5_000, 800)])
async def test_no_send_is_lost_when_a_run_of_it_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, calls: int, count: int, topics: int
) -> None:
    lane, queues = BrokerBacklog("a"), [MessageQueue(f"t{number}", "a", 0) for number in range(topics)]
    for start in range(0, count, 100):
        lane.add(plain(range(start, start + 100)))
        lane.waiting[-1].queues = [queues[call_id % topics] for call_id in lane.waiting[-1].call_ids]
    futures = {
        message.message_id: future
        for sends in lane.waiting
        for message, future in zip(sends.messages, sends.futures, strict=True)
    }
    with monkeypatch.context() as patch:
        for module in (sends_module, batching_module):
            patch.setattr(module, "Permutation", lambda queues: Unlucky(queues, calls))
        with pytest.raises(MemoryError):
            lane.take_run()
    left = [
        (message.message_id, future, sends.sizes[index], sends.call_ids[index], sends.deadlines[index])
        for sends in lane.waiting
        for index, (message, future) in enumerate(zip(sends.messages, sends.futures, strict=True))
    ]
    assert {message_id: future for message_id, future, *_ in left} == futures
    assert len(left) == count
    assert sum(len(run) for run in iter(lambda: lane.waiting and lane.take_run(), deque())) == count


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
    same.extras, same.tries = [Extra(b"", b"") for _ in queues], 1
    again = same.by_queue()
    assert bodies(again) == list(again.call_ids) == expected


async def test_those_of_a_queue_keep_their_order_where_a_configuration_names_it_twice() -> None:
    route = TopicRoute("t", (BrokerQueues("a", 2, 2, 6),), {"a": {0: "127.0.0.1:1"}}, order_conf="a:2;a:2")
    lane, sends = BrokerBacklog("a"), plain(range(12))
    sends.queues = Rotation(route.publish_queues(), 0).take(12, 0.0)
    lane.add(sends)
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


async def test_results_are_given_to_those_that_wait_beside_a_oneway() -> None:
    sends, results = plain(range(2)), [SendResult(SendStatus.SEND_OK, str(n), QUEUES[0], n, PLACE, n) for n in range(2)]
    sends.mode, sends.modes, sends.futures[0] = "oneway", ["oneway", "sync"], None
    assert not sends.any_ended
    sends.tell(results)
    assert sends.futures[1] is not None
    assert sends.futures[1].result().message_id == "1"
    assert sends.any_ended


async def test_sends_of_several_modes_are_one_run_that_tells_the_mode_of_each() -> None:
    waiting = deque([plain(range(2)), plain(range(2, 4), mode="async"), special(4)])
    run = take_run(waiting)
    assert (run.each_mode, bodies(run)) == (["sync", "sync", "async", "async", "sync"], list(range(5)))
    assert not waiting


async def test_what_has_another_kind_or_history_is_another_run_in_the_order_of_the_submits() -> None:
    other, failed = plain(range(2, 4)), plain(range(4, 6))
    other.kind, failed.tries = NO_WAIT, 1
    waiting = deque([plain(range(2)), other, failed, plain(range(6, 8))])
    assert [bodies(take_run(waiting)) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], [6, 7]]


async def test_special_and_plain_sends_to_one_broker_keep_the_order_in_which_they_came() -> None:
    lane = BrokerBacklog("a")
    for sends in (plain(range(4)), special(4), plain(range(5, 8))):
        lane.add(sends)
    run = lane.take_run()
    assert sorted(run.call_ids) == list(range(8))
    assert bodies(run) == [0, 4, 1, 5, 2, 6, 3, 7]
    assert [extra is not None for extra in run.each_extra] == [number == 4 for number in bodies(run)]
    lane.add(plain(range(4, 8)))
    lane.put_back(special(0))
    assert list(lane.take_run().call_ids) == [0, 4, 5, 6, 7]
    assert not lane.waiting


async def test_a_flood_with_special_sends_keeps_what_each_has() -> None:
    queues = [MessageQueue(f"t{number}", "a", 0) for number in range(800)]
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 20_000, 100))
    waiting[3], waiting[4] = special(300), plain(range(400, 500), mode="async")
    for sends in waiting:
        sends.queues = [queues[call_id % 800] for call_id in sends.call_ids]
    told = {}
    while waiting:
        run = take_run(waiting)
        for number, mode, extra in zip(bodies(run), run.each_mode, run.each_extra, strict=True):
            told[number] = (mode, extra is not None)
    assert len(told) == 20_000 - 99
    assert {number for number, (_, is_special) in told.items() if is_special} == {300}
    assert {number for number, (mode, _) in told.items() if mode == "async"} == set(range(400, 500))


async def test_what_goes_again_keeps_its_call_ids_in_any_order() -> None:
    queues = [MessageQueue(f"t{number}", "a", 0) for number in range(800)]
    waiting = deque(plain(range(start, start + 100)) for start in range(0, 20_000, 100))
    for sends in waiting:
        sends.tries, sends.queues = 1, [queues[call_id % 800] for call_id in sends.call_ids]
    lane = BrokerBacklog("a")
    lane.waiting = waiting
    left: list[int] = []
    while lane.waiting:
        run = lane.take_run()
        assert bodies(run) == list(run.call_ids)
        left += run.call_ids
    assert sorted(left) == list(range(20_000))


async def test_a_deadline_of_what_has_left_does_not_end_what_waits() -> None:
    lane = BrokerBacklog("a")
    lane.add(plain(range(1)))
    lane.take_run()
    later = plain(range(1, 3))
    later.deadlines = [20.0, 20.0]
    lane.add(later)
    assert lane.take_expired(15.0) == []
    assert lane.first_deadline == 20.0
    assert lane.take_run() is later


async def test_sends_that_waited_too_long_are_taken_out_and_the_others_stay() -> None:
    lane, sends = BrokerBacklog("a"), plain(range(3))
    sends.deadlines[1] = 12.0
    lane.add(sends)
    assert lane.take_expired(9.0) == []
    assert [list(expired.call_ids) for expired in lane.take_expired(10.0)] == [[0, 2]]
    assert lane.first_deadline == 12.0
    assert list(lane.take_run().call_ids) == [1]
    assert not lane.waiting


async def test_sends_are_divided_by_broker_in_their_order() -> None:
    sends = plain(range(4))
    sends.queues = [MessageQueue("t", name, 0) for name in "abab"]
    assert [(name, list(part.call_ids)) for name, part in sends.by_broker()] == [("a", [0, 2]), ("b", [1, 3])]


@pytest.mark.parametrize(
    "more",
    [
        {"keys": "k"}, {"properties": {"a": "b"}}, {"delay_level": 1}, {"sharding_key": "s"}, {"wait_store": False},
        {"message_id": "own"}, {"body": b"x" * 4096}, {"body": b""},
    ],
)  # fmt: skip
def test_a_message_with_something_of_its_own_is_not_plain(more: dict[str, Any]) -> None:
    intake = Intake(ProducerConfig())
    assert intake.plain(Message(**{"topic": "t", "body": b"x", **more})) is None
    assert Intake(ProducerConfig(namespace="n")).plain(Message("t", b"x")) is None


def test_what_messages_have_in_common_is_found_whatever_came_before() -> None:
    intake = Intake(ProducerConfig())
    for topic, flag, tags in (("t", 0, None), ("u", 0, None), ("u", 1, None), ("u", 1, "a"), ("t", 0, None)):
        assert intake.plain(Message(topic, b"x", flag=flag, tags=tags)) is template(topic, flag, tags)


def fresh_sends(doors: Any, turns: list[None] | None = None) -> Fresh:
    asked: list[None] = [] if turns is None else turns
    return Fresh(CallIds(7), 3.0, doors, lambda: asked.append(None), PLAIN)


async def test_what_one_turn_submitted_goes_together_in_its_order() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    sends = fresh.plain("sync")
    sends.extend(without_queues(plain(range(2))))
    join(fresh, 2, mode="async")
    assert fresh.plain("sync") is sends
    assert doors.is_open
    for column, element in zip(("messages", "commons", "sizes", "futures"), row(3), strict=True):
        getattr(sends, column).append(element)
    taken = fresh.take()
    assert not fresh
    assert taken == [sends]
    assert (bodies(sends), list(sends.call_ids)) == ([0, 1, 2, 3], [7, 8, 9, 10])
    assert sends.modes == ["sync", "sync", "async", "sync"]
    assert [extra is not None for extra in sends.extras] == [False, False, True, False]
    assert sends.deadlines[:2] == [10.0, 10.0]
    assert sends.deadlines[3] == sends.deadline


def row(number: int) -> tuple[Any, ...]:
    """What the compiled part appends."""
    sends = plain(range(number, number + 1))
    return sends.messages[0], sends.commons[0], sends.sizes[0], sends.futures[0]


async def test_a_send_of_another_kind_ends_the_columns_that_plain_ones_join() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    fresh.plain("sync").extend(without_queues(plain(range(1))))
    join(fresh, 1, wait_store=False)
    assert not doors.is_open
    fresh.plain("sync").extend(without_queues(plain(range(2, 3))))
    assert [(bodies(sends), list(sends.call_ids)) for sends in fresh.take()] == [([0], [7]), ([1], [8]), ([2], [9])]


async def test_what_was_held_until_there_was_room_goes_behind_what_is_there() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    fresh.plain("sync").extend(without_queues(plain(range(1))))
    fresh.add(without_queues(special(1)))
    assert not doors.is_open
    assert [(bodies(sends), list(sends.call_ids)) for sends in fresh.take()] == [([0], [7]), ([1], [8])]


async def test_a_send_that_garbage_makes_while_another_joins_takes_nothing_of_it() -> None:
    class Late(list[Any]):
        """A column into which a send comes when somebody else looks how long it is."""

        def __len__(self) -> int:
            count = super().__len__()
            if late:
                for column, element in zip(("messages", "commons", "sizes", "futures"), late.pop(), strict=True):
                    getattr(sends, column).append(element)
            return count

    late = [row(1)]
    sends = plain(range(1))
    sends.messages = Late(sends.messages)
    extra = Extra(b"", b"")
    sends.append("async", Message("t", b"body 2"), template("t", 0, None), 100, None, 3.0, extra)
    sends.complete()
    assert bodies(sends) == [0, 1, 2]
    assert sends.each_extra == [None, None, extra]
    assert sends.each_mode == ["sync", "sync", "async"]
    assert sends.deadlines == [10.0, 10.0, 3.0]


async def test_what_a_failed_turn_put_back_is_taken_again() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    sends = fresh.plain("sync")
    sends.extend(without_queues(plain(range(2))))
    taken = fresh.take()
    assert list(sends.call_ids) == [7, 8]
    fresh.put_back(taken)
    assert fresh.take() == [sends]
    assert len(sends.deadlines) == 2


async def test_the_next_turn_has_columns_of_the_same_mode_open_before_anything_joins_them() -> None:
    doors: Any = Doors()
    turns: list[None] = []
    fresh = fresh_sends(doors, turns)
    fresh.plain("sync").extend(plain(range(1)))
    fresh.take()
    assert doors.is_open
    assert not fresh
    doors.begin()
    doors.begin()
    assert len(turns) == 2
    assert fresh
    assert fresh.take() == []
    fresh.end_plain()
    fresh.take()
    assert not doors.is_open


async def test_a_special_send_goes_before_plain_sends_that_join_later() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    fresh.plain("sync").extend(without_queues(plain(range(1))))
    fresh.take()
    join(fresh, 1)
    assert doors.is_open
    fresh.plain("sync").extend(without_queues(plain(range(2, 3))))
    assert [(bodies(sends), list(sends.call_ids)) for sends in fresh.take()] == [([1], [8]), ([2], [9])]


async def test_columns_that_were_begun_in_vain_take_the_next_special_send() -> None:
    doors: Any = Doors()
    fresh = fresh_sends(doors)
    fresh.plain("sync")
    join(fresh, 3)
    assert doors.is_open
    fresh.plain("sync").extend(without_queues(plain(range(4, 5))))
    assert [(bodies(sends), list(sends.call_ids)) for sends in fresh.take()] == [([3, 4], [7, 8])]


async def test_whatever_is_done_to_sends_is_done_to_all_their_columns() -> None:
    columns = (
        "messages", "commons", "sizes", "futures", "queues", "call_ids", "deadlines", "each_mode", "each_extra",
    )  # fmt: skip

    def rows(sends: Sends) -> list[tuple[Any, ...]]:
        return list(zip(*(getattr(sends, name) for name in columns), strict=True))

    one, other = plain(range(4), tags=True), plain(range(4, 6), tags=True, mode="async")
    other.extend(special(6))
    expected = rows(one) + rows(other)
    one.extend(other)
    assert rows(one) == expected
    assert rows(one.pick(lambda column: column[::2])) == expected[::2]
    odd, even = one.divide([False, True] * 3 + [False])
    assert (rows(odd), rows(even)) == (expected[1::2], expected[::2])
    assert rows(one.cut(4)) == expected[:4]
    assert rows(one) == expected[4:]
