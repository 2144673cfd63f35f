"""What the pop service decides, over a real store and a clock that tests turn."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_broker.pop.handles import Handle
from dejamq_broker.pop.records import Writing, ack, check_point
from dejamq_broker.tables.offsets import Position
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import Record, decode, encode_properties
from pop_world import GROUP, TOPIC, bodies, pop_world

RETRY = f"%RETRY%{GROUP}_{TOPIC}"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def killed(*_: Any, **__: Any) -> None:
    """The process ends here."""
    raise RuntimeError


def refused(*_: Any, **__: Any) -> None:
    """The disk is full here."""
    raise DejamqError("no space", code=Code.SERVICE_NOT_AVAILABLE)


async def test_a_message_is_given_once_until_its_time_is_over_and_then_again_as_a_retry(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (first,) = world.pop(invisible_ms=10_000)
        assert world.pop() == []
        await world.after(9_999)
        assert world.pop() == []
        await world.after(1)
        (again,) = world.pop()
        assert (first.attempt, again.attempt, again.topic) == (1, 2, RETRY)
        assert world.ack(first) == [Code.NO_MESSAGE]
        assert world.ack(again) == [0]
        await world.after(1_000_000)
        assert world.pop() == []


async def test_what_is_in_flight_is_so_after_a_crash_and_what_is_done_stays_done(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"done", b"kept", b"changed", b"revived")
        done, kept, changed, revived = world.pop()
        world.ack(done)
        assert world.change(revived, 0) != int(Code.NO_MESSAGE)
        later = world.change(changed, 60_000)
        assert not isinstance(later, int)
        await world.after(1)
        world.crash()
        assert bodies(world.pop(invisible_ms=1_000_000)) == [b"revived"]
        world.crash()
        assert world.pop() == []
        assert world.ack(kept, later) == [0, 0]
        await world.after(900_000)
        assert world.pop() == []


async def test_a_copy_whose_acknowledgement_a_crash_took_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        world.pop()
        with monkeypatch.context() as cut:
            cut.setattr(world.popping.state, "done", killed)
            with pytest.raises(RuntimeError):
                await world.after(10_000)
        world.crash()
        await world.after(1_000)
        assert world.bodies_in(RETRY) == [b"x"]


async def test_a_copy_is_not_made_again_where_another_queues_record_stands_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        world.pop()
        with monkeypatch.context() as full:
            full.setattr(world.popping.state, "_put_ack", refused)
            await world.after(10_000)
        world.send(b"other", queue_id=1)
        assert sorted(bodies(world.pop(invisible_ms=1_000_000))) == [b"other", b"x"]
        world.crash()
        await world.after(1_000)
        assert world.bodies_in(RETRY) == [b"x"]


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_acknowledgement_that_the_store_does_not_take_is_an_error_and_counts_when_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        given = world.pop(invisible_ms=10_000, ordered=ordered)
        with monkeypatch.context() as full:
            full.setattr(world.store, "put", refused)
            full.setattr(world.domain.writer, "put_all", refused)
            try:
                codes = world.ack(*given)
            except DejamqError as error:
                codes = [int(error.code)]
            assert codes == [Code.SERVICE_NOT_AVAILABLE]
        assert world.ack(*given) == [0]
        world.crash()
        await world.after(1_000_000)
        assert world.pop(ordered=ordered) == []


async def test_a_copy_without_space_for_a_reference_is_not_made_again_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path, queues=1) as world:
        for body in (b"x", b"y"):
            properties = encode_properties({"UNIQ_KEY": body.decode(), "long": "-" * 32_700})
            world.store.put(Record(TOPIC, 0, body, properties, store_host=("127.0.0.1", 10911)))
        world.pop()
        with monkeypatch.context() as cut:
            cut.setattr(world.popping.state, "done", killed)
            with pytest.raises(RuntimeError):
                await world.after(10_000)
        world.crash()
        await world.after(1_000)
        assert world.bodies_in(RETRY) == [b"x", b"y"]


async def test_a_change_that_a_crash_cut_in_two_leaves_one_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop()
        with monkeypatch.context() as cut:
            cut.setattr(world.popping.state, "_put_ack", killed)
            with pytest.raises(RuntimeError):
                world.change(given, 20_000)
        world.crash()
        await world.after(19_999)
        assert world.pop() == []
        await world.after(60_000)
        assert world.bodies_in(RETRY) == [b"x"]


async def test_a_message_is_acknowledged_by_its_changed_handle_and_by_the_one_before(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1", b"2")
        _, one, two = world.pop()
        changed = [world.change(each, 20_000) for each in (one, two)]
        assert not any(isinstance(each, int) for each in changed)
        assert world.ack_handles([changed[0].handle]) == [0]  # type: ignore[union-attr]
        assert world.ack(two) == [0]
        await world.after(60_000)
        assert world.bodies_in(RETRY) == [b"0"]


async def test_the_last_try_makes_a_dead_letter_that_knows_its_topic(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.domain.tables.groups.update(GROUP, retry_max_times=2)
        world.send(b"x")
        for attempt in (1, 2, 3):
            (given,) = world.pop()
            assert given.attempt == attempt
            await world.after(10_000)
        assert world.pop() == []
        assert world.bodies_in(f"%DLQ%{GROUP}") == [b"x"]
        letter = decode(world.store.read(f"%DLQ%{GROUP}", 0, 0).records)
        assert (letter.reconsume_times, letter.properties["RETRY_TOPIC"]) == (3, TOPIC)


async def test_check_points_and_acks_are_records_of_the_revive_topic_as_rocketmq_writes_them(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"a", b"b", b"c")
        a, b, c = world.pop()
        world.ack(a)
        world.ack(b, c)
        found, at, records = world.store.read(REVIVE, 0, 0), 0, []
        for size in found.sizes:
            records.append(decode(found.records, at))
            at += size
        point, ack, batch = [json.loads(record.body) for record in records]
        popped = a.handle.pop_time
        assert [record.properties["TAGS"] for record in records] == ["ck", "ack", "bAck"]
        assert point == {
            "so": 0, "pt": popped, "it": 10_000, "bm": 0, "n": 3, "q": 0, "t": TOPIC, "c": GROUP, "d": [0, 1, 2],
            "bn": "broker-a", "ro": 0, "rp": None,
        }  # fmt: skip
        same = {"so": 0, "c": GROUP, "t": TOPIC, "q": 0, "pt": popped, "bn": "broker-a"}
        assert ack == same | {"ao": 0}
        assert batch == same | {"ao": -1, "aol": [1, 2]}
        assert records[0].properties["TIMER_DELIVER_MS"] == str(popped + 9_000)
        assert records[0].properties["UNIQ_KEY"] == f"{TOPIC}@0@0@{GROUP}@{popped}@broker-a@ck"


async def test_the_revive_group_is_behind_the_oldest_check_point_that_counts(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"a", b"b")
        (first,) = world.pop(1)
        (second,) = world.pop(1)
        world.ack(second)
        await world.flush()
        at = Position("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0)
        assert world.domain.tables.offsets.get(at) is None  # RocketMQ begins at 0 then
        world.ack(first)
        await world.flush()
        assert world.domain.tables.offsets.get(at) == 3


async def test_a_check_point_far_behind_is_written_again_so_that_a_start_reads_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq_broker.pop.state.MOST_BEHIND", 10)
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"stuck", *(b"%d" % number for number in range(20)))
        (stuck,) = world.pop(1, invisible_ms=3_600_000)
        for _ in range(20):
            world.ack(*world.pop(1))
        await world.flush()
        at = Position("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0)
        assert (world.domain.tables.offsets.get(at) or 0) > 30
        world.crash()
        assert world.ack(stuck) == [0]
        world.crash()
        await world.after(3_600_000)
        assert world.pop() == []


async def test_a_slave_says_nothing_about_records_that_only_its_master_reads(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        world.pop()
        world.ack(*world.pop())
        world.domain.site.broker_id = 1
        await world.flush()
        assert world.domain.tables.offsets.get(Position("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0)) is None
        with pytest.raises(DejamqError) as refused:
            world.pop()
        assert refused.value.code == Code.SLAVE_NOT_AVAILABLE


async def test_an_offset_of_the_revive_group_behind_the_log_hides_no_message_in_flight(tmp_path: Path) -> None:
    """A slave may have its master's tables and less of its log."""
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop()
        at = Position("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0)
        world.domain.tables.offsets.commit(at, 50, by="slave-sync")
        await world.domain.tables.offsets.flush()
        world.crash()
        assert world.pop() == []
        assert world.ack(given) == [0]


async def test_a_start_without_messages_in_flight_reads_no_retries_and_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        world.ack(*world.pop())
        monkeypatch.setattr("dejamq_broker.pop.recovery.PopRecovery._copies_after", killed)
        world.crash()
        assert world.pop() == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pop_time": 1}, Code.NO_MESSAGE),
        ({"start_offset": 7}, Code.NO_MESSAGE),
        ({"queue_offset": 7}, Code.NO_MESSAGE),
        ({"queue_id": 1}, Code.NO_MESSAGE),
        ({"kind": 1}, Code.NO_MESSAGE),
        ({"revive_queue_id": 999}, Code.NO_MESSAGE),
        ({"broker_name": "broker-b"}, Code.MESSAGE_ILLEGAL),
        ({"queue_id": 9}, Code.MESSAGE_ILLEGAL),
        ({"queue_id": -1}, Code.MESSAGE_ILLEGAL),
    ],
)
async def test_a_forged_handle_is_refused_and_changes_nothing(
    change: dict[str, int | str], code: Code, tmp_path: Path
) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop()
        fields = {name: getattr(given.handle, name) for name in Handle.__struct_fields__} | change
        forged = given._replace(handle=Handle(**fields))
        assert world.ack(forged) == [code]
        assert world.change(forged, 0) == code
        assert world.ack(given) == [0]


@pytest.mark.parametrize(
    "text", ["", "x", "1 2 3", "1 2 3 0 9 b 0 0", "1 2 x 0 0 b 0 0", "1 2 3 0 0 b 0 " + "9" * 600, "9" * 400]
)
def test_a_text_that_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(DejamqError) as refused:
        Handle.read(text)
    assert refused.value.code == Code.MESSAGE_ILLEGAL


def test_a_handle_is_the_text_that_rocketmqs_clients_make() -> None:
    text = "0 1795719384776 60000 0 0 b-1 0 2"
    handle = Handle.read(text)
    assert (handle.start_offset, handle.pop_time, handle.queue_offset, handle.log_offset) == (0, 1795719384776, 2, -1)
    assert str(handle) == text + " -1"


async def test_handles_of_a_deleted_topic_are_refused_and_its_messages_forgotten(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop()
        await world.domain.services.lives.delete_topic(TOPIC)
        with pytest.raises(DejamqError) as refused:
            world.ack(given)
        assert refused.value.code == Code.TOPIC_NOT_EXIST
        world.crash()
        assert world.ack(given) == [Code.NO_MESSAGE]
        await world.after(1_000_000)
        world.send(b"new")
        assert bodies(world.pop()) == [b"new"]


async def test_a_reset_brings_what_is_behind_it_again_and_leaves_what_is_in_flight_before_it(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1", b"2", b"3")
        zero, one, two, three = world.pop()
        world.ack(one, three)
        world.domain.tables.offsets.move(Position(GROUP, TOPIC, 0), 2, by="reset")
        world.crash()
        assert bodies(world.pop()) == [b"2", b"3"]
        assert world.ack(two)[0] == Code.NO_MESSAGE
        assert world.ack(zero) == [0]


async def test_a_full_flight_gives_no_more_until_some_are_done(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1, pop_inflight_message_threshold=3) as world:
        world.send(*(b"%d" % number for number in range(5)))
        given = world.pop()
        assert bodies(given) == [b"0", b"1", b"2"]
        assert world.pop() == []
        world.ack(given[1])
        assert bodies(world.pop()) == [b"3"]


async def test_all_handles_of_a_batch_count_after_a_restart_though_no_answer_to_a_change_came(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"x", b"y")
        both = world.pop()
        for given in both:
            world.change(given, 6_000)
        await world.restart()  # the record of the batch is not read any more
        assert world.ack(*both) == [0, 0]


async def test_handles_count_after_a_restart_though_no_answer_to_their_changes_came(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"x", b"y")
        both = world.pop()
        for given in both * 2:
            world.change(given, 6_000 + world.now_ms % 10)
            world.now_ms += 1
        await world.restart()
        await world.restart()  # its records before the last changes are not read any more
        assert world.ack(*both) == [0, 0]
        await world.after(60_000)
        assert world.pop() == []


async def test_a_changed_handle_counts_although_its_check_point_was_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq_broker.pop.state.MOST_BEHIND", 1)
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"x", b"y")
        (given,) = world.pop(1)
        world.change(given, 60_000)
        world.ack(*world.pop(1))
        await world.restart()
        await world.restart()
        assert world.ack(given) == [0]


async def test_a_change_asked_again_with_the_old_handle_makes_no_second_delivery(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.send(b"x")
        (given,) = world.pop()
        first, second = world.change(given, 5_000), world.change(given, 5_000)
        assert first == second
        await world.after(60_000)
        assert len(world.pop()) == 1
        assert world.bodies_in(RETRY) == [b"x"]


async def test_a_group_without_offset_begins_with_all_of_a_young_queue_or_where_it_says(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"a", b"b")
        assert bodies(world.pop()) == [b"a", b"b"]


async def test_tags_are_compared_and_what_nobody_wants_is_passed_over(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"no", tags="b")
        world.send(b"yes", tags="a")
        assert bodies(world.pop(expression="a")) == [b"yes"]
        assert world.pop() == []


async def test_what_a_rocketmq_kept_in_its_timer_and_its_other_revive_queues_is_taken_over_once(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"timer", b"queue", b"done", b"old")
        world.domain.tables.topics.ensure(REVIVE, 8)
        on, at = Writing(REVIVE, "broker-a", ("127.0.0.1", 10911)), Position(GROUP, TOPIC, 0)
        world.domain.tables.groups.require(GROUP)
        now = world.now_ms

        def in_timer(record: Record, due_ms: int) -> Record:
            more = {"REAL_TOPIC": REVIVE, "REAL_QID": "3", "TIMER_OUT_MS": str(due_ms)}
            properties = encode_properties(record.properties | more)
            return msgspec.structs.replace(record, topic="rmq_sys_wheel_timer", queue_id=0, raw_properties=properties)

        revived = check_point(on, at, [1], now, 10_000)
        world.store.put(in_timer(check_point(on, at, [3], now - 50_000, 10_000), now - 41_000))
        world.store.put(in_timer(check_point(on, at, [0], now + 1, 10_000), now + 9_001))
        world.store.put(in_timer(check_point(on, at, [2], now + 2, 10_000), now + 9_002))
        world.store.put(in_timer(ack(on, at, 2, [2], now + 2, 10_000), now + 10_002))
        world.store.put(in_timer(revived, now + 9_000))
        world.store.put(msgspec.structs.replace(revived, queue_id=3))
        world.domain.tables.offsets.commit(at, 4, by="sync")
        await world.flush()
        for _ in range(2):
            await world.restart()
            assert world.pop() == []
            world.crash()
        handle = Handle(1, now, 10_000, 3, 0, "broker-a", 0, 1)
        assert world.ack_handles([handle]) == [0]
        await world.restart()
        await world.after(20_000)
        assert bodies(world.pop()) == [b"timer"]


async def test_a_check_point_that_is_written_again_keeps_its_handles_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq_broker.pop.state.MOST_BEHIND", 5)
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"a", b"b", *(b"%d" % number for number in range(10)))
        first, second = world.pop(2, invisible_ms=3_600_000)
        world.ack(first)
        for _ in range(10):
            world.ack(*world.pop(1))
        await world.flush()
        world.crash()
        assert world.ack(second) == [0]


# in order


async def test_a_queue_in_order_gives_nothing_while_somebody_has_its_messages(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1", b"2", b"3")
        zero, one = world.pop(2, ordered=True)
        assert world.pop(ordered=True) == []
        world.ack(zero)
        assert world.pop(ordered=True) == []
        assert world.domain.tables.offsets.get(Position(GROUP, TOPIC, 0)) == 1
        world.ack(one)
        assert bodies(world.pop(ordered=True)) == [b"2", b"3"]


async def test_in_order_what_is_left_comes_again_alone_and_what_is_done_behind_it_does_not(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1", b"2", b"3")
        zero, one, two = world.pop(3, ordered=True)
        assert world.ack(one, two) == [0, 0]
        world.crash()
        assert world.pop(ordered=True) == []
        await world.after(10_000)
        again = world.pop(1, ordered=True)
        assert [(each.body, each.attempt) for each in again] == [(b"0", 2)]
        assert world.ack(zero) == [Code.NO_MESSAGE]
        assert world.ack(*again) == [0]
        assert bodies(world.pop(ordered=True)) == [b"3"]


async def test_in_order_a_handle_stays_done_when_its_pop_time_comes_again_after_a_start(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0")
        (zero,) = world.pop(ordered=True)
        assert world.ack(zero) == [0]
        await world.restart()
        world.send(b"1")
        (one,) = world.pop(ordered=True)
        assert one.handle.pop_time == zero.handle.pop_time
        assert world.ack(zero) == [0]
        assert world.ack(one) == [0]


async def test_in_order_the_same_attempt_gets_the_same_messages_and_counts_once(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1")
        world.pop(ordered=True, attempt_id="one")
        assert world.pop(ordered=True, attempt_id="two") == []
        again = world.pop(ordered=True, attempt_id="one")
        assert [(each.body, each.attempt) for each in again] == [(b"0", 1), (b"1", 1)]
        assert world.ack(*again) == [0, 0]


async def test_in_order_a_message_without_tries_left_is_a_dead_letter_and_holds_up_nothing(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.domain.tables.groups.update(GROUP, retry_max_times=1)
        world.send(b"bad", b"good")
        for attempt in (1, 2):
            (given,) = world.pop(1, ordered=True)
            assert (given.body, given.attempt) == (b"bad", attempt)
            await world.after(10_000)
        assert bodies(world.pop(ordered=True)) == [b"good"]
        assert world.bodies_in(f"%DLQ%{GROUP}") == [b"bad"]


async def test_in_order_a_dead_letter_is_not_made_again_after_a_crash(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.domain.tables.groups.update(GROUP, retry_max_times=1)
        world.send(b"bad", queue_id=0)
        for _ in range(2):
            assert bodies(world.pop(ordered=True)) == [b"bad"]
            await world.after(10_000)
        assert world.pop(ordered=True) == []
        world.send(b"good", queue_id=1)
        assert bodies(world.pop(ordered=True)) == [b"good"]
        world.crash()
        await world.after(10_000)
        assert bodies(world.pop(ordered=True)) == [b"good"]
        assert world.bodies_in(f"%DLQ%{GROUP}") == [b"bad"]


async def test_in_order_dead_letters_leave_the_messages_behind_them_their_tries(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.domain.tables.groups.update(GROUP, retry_max_times=1)
        world.send(b"0", b"1", b"2", b"3", b"good")
        for _ in range(2):
            assert len(world.pop(4, ordered=True)) == 4
            await world.after(10_000)
        assert bodies(world.pop(2, ordered=True)) == [b"good"]
        assert world.bodies_in(f"%DLQ%{GROUP}") == [b"0", b"1", b"2", b"3"]


async def test_in_order_a_batch_is_told_in_rocketmqs_file_and_taken_from_it(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1", b"2")
        zero, one = world.pop(2, ordered=True, attempt_id="a")
        assert world.ack(zero) == [0]
        await world.flush()
        file = world.directory / "config" / "consumerOrderInfo.json"
        told = json.loads(file.read_text(encoding="utf-8"))
        popped = one.handle.pop_time
        entry = {"popTime": popped, "i": 10_000, "l": popped, "o": [0, 1], "ot": {}, "oc": {}, "cm": 1, "a": "a"}
        assert told == {"table": {f"{TOPIC}@{GROUP}": {"0": entry}}}
        world.ack(one)
        world.send(b"3", b"4")
        world.domain.tables.offsets.commit(Position(GROUP, TOPIC, 0), 3, by="sync")
        await world.flush()
        entry |= {"o": [3, 1], "cm": 0, "a": "b"}
        table = f'{{"{TOPIC}@{GROUP}":{{0:{json.dumps(entry)}}}}}'
        file.write_text(f'{{"table":{table}}}', encoding="utf-8")
        world.crash()
        assert world.pop(ordered=True) == []
        assert bodies(world.pop(ordered=True, attempt_id="b")) == [b"3", b"4"]


async def test_in_order_a_file_that_is_older_than_the_groups_offset_holds_up_nothing(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0", b"1")
        (zero,) = world.pop(1, ordered=True)
        await world.flush()
        file = world.directory / "config" / "consumerOrderInfo.json"
        older = file.read_bytes()
        assert world.ack(zero) == [0]
        await world.flush()
        file.write_bytes(older)
        world.crash()
        assert bodies(world.pop(ordered=True)) == [b"1"]


async def test_in_order_a_changed_time_frees_the_queue_then(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(b"0")
        (given,) = world.pop(ordered=True)
        changed = world.change(given, 1_000)
        assert not isinstance(changed, int)
        await world.after(999)
        assert world.pop(ordered=True) == []
        await world.after(1)
        assert bodies(world.pop(ordered=True)) == [b"0"]


async def test_a_large_pop_is_given_and_acknowledged_as_several_check_points_in_one_piece(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        sent = [b"%03d" % number for number in range(100)]
        world.send(*sent)
        given = world.pop(100, invisible_ms=10_000)
        assert bodies(given) == sent
        assert len({each.handle.pop_time for each in given}) == 4
        assert {each.handle.pop_time + each.handle.invisible_ms for each in given} == {world.now_ms + 10_000}
        world.crash()
        assert world.ack(*given[1:]) == [0] * 99
        world.crash()
        assert world.pop() == []
        await world.after(10_000)
        assert bodies(world.pop()) == [sent[0]]


async def test_a_large_pop_that_the_disk_takes_in_part_gives_that_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pop_world(tmp_path, queues=1) as world:
        sent = [b"%03d" % number for number in range(70)]
        world.send(*sent)
        writer, put, left = world.domain.writer, world.domain.writer.put, iter([1])

        def some(*one: Any) -> Any:
            if next(left, 0):
                return put(*one)
            raise DejamqError("no space", code=Code.SERVICE_NOT_AVAILABLE)

        with monkeypatch.context() as full:
            full.setattr(writer, "put_all", lambda *_: None)
            full.setattr(writer, "put", some)
            given = world.pop(70)
        assert bodies(given) == sent[:32]
        world.crash()
        assert bodies(world.pop(70)) == sent[32:]
        assert world.ack(*given) == [0] * 32


async def test_in_order_a_large_pop_is_one_batch_that_a_check_point_could_hold(tmp_path: Path) -> None:
    with pop_world(tmp_path, queues=1) as world:
        world.send(*(b"%03d" % number for number in range(40)))
        assert len(world.pop(40, ordered=True)) == 32


async def test_a_topic_of_dead_letters_that_no_file_tells_of_comes_back_with_its_messages(tmp_path: Path) -> None:
    with pop_world(tmp_path) as world:
        world.domain.tables.groups.update(GROUP, retry_max_times=1)
        world.send(b"bad", queue_id=0)
        for _ in range(2):
            assert bodies(world.pop(ordered=True)) == [b"bad"]
            await world.after(10_000)
        assert world.pop(ordered=True) == []
        topics = world.domain.tables.topics
        topics.delete(f"%DLQ%{GROUP}")
        world.crash()
        assert world.domain.tables.topics.get(f"%DLQ%{GROUP}") is not None
        assert world.bodies_in(f"%DLQ%{GROUP}") == [b"bad"]
