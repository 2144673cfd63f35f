"""Small parts of the SDK, each by itself: assignments, subscriptions, start rules, results, the send journal."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from consumer_fakes import FakeLink, context, owned_queue
from dejamq import BrokerUnavailable, Code, ConfigError, DejamqError, InvalidName, Message, MessageQueue, SendTimeout
from dejamq.handling.subscriptions import Subscription, Subscriptions
from dejamq.rebalance.consume_from import ConsumeFrom, StartRule
from dejamq.receiving.assignment import Assignment, OwnedQueue
from dejamq.receiving.deliveries import Deliveries
from dejamq.receiving.offset_store import RemoteOffsetStore
from dejamq.receiving.process_queue import ProcessQueue
from dejamq.sending.batching import BrokerBacklog, Flight
from dejamq.sending.encoding import template
from dejamq.sending.journal import SendJournal
from dejamq.sending.queue_choice import Rotation
from dejamq.sending.sends import Sends
from dejamq.values.message import SendResult, SendStatus, StoredRun
from dejamq.values.selectors import by_hash
from dejamq_proto.journal.writer import Journal, Level
from dejamq_proto.records.record import java_hash
from dejamq_proto.wire.messages import SendRunResult
from journalled import journalled

Q0, Q1 = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
RETRY = MessageQueue("%RETRY%g", "broker-a", 0)


# --- assignments


def owning(*queues: MessageQueue) -> Assignment:
    assignment = Assignment()
    for number, queue in enumerate(queues):
        assignment = assignment.plus(OwnedQueue(number, queue, ProcessQueue(0), 0))
    return assignment


def test_adding_a_queue_leaves_the_earlier_assignment_as_it_was() -> None:
    before = owning(Q0)
    after = before.plus(OwnedQueue(9, Q1, ProcessQueue(0), 0))
    assert (Q1 in before, Q1 in after) == (False, True)


def test_the_groups_retry_queue_is_owned_but_not_shown() -> None:
    assignment = owning(RETRY, Q1, Q0)
    assert assignment.queues() == (Q0, Q1)
    assert assignment.by_topic().keys() == {"orders", "%RETRY%g"}


def test_queues_are_told_by_topic() -> None:
    assert owning(RETRY, Q0, Q1).by_topic() == {"orders": {Q0, Q1}, "%RETRY%g": {RETRY}}


def test_an_ownership_that_ended_does_not_take_a_newer_one_of_the_same_queue_with_it() -> None:
    old = OwnedQueue(1, Q0, ProcessQueue(0), 0)
    assignment = Assignment().plus(OwnedQueue(2, Q0, ProcessQueue(5), 5))
    assert Q0 in assignment.without([old])


def test_bodies_held_in_all_queues_are_summed_up() -> None:
    assignment = owning(Q0, Q1)
    for owned in assignment:
        owned.process_queue.put([0, 1], [10, 20])
    assert assignment.cached_bytes == 60


def test_a_queue_is_dropped_when_its_process_queue_is() -> None:
    owned = owned_queue()
    assert not owned.dropped
    owned.process_queue.dropped = True
    assert owned.dropped


# --- subscriptions


async def on_message(message: object) -> None:
    """A handler of the right shape."""


def test_a_heartbeat_tells_subscriptions_sorted_tags_and_the_retry_topic() -> None:
    subscriptions = Subscriptions("g", lambda: 77)
    subscriptions.add("orders", on_message, tags="b || a")
    told = [(one.topic, one.expression, one.version) for one in subscriptions.wire()]
    assert told == [("orders", "a || b", 77), ("%RETRY%g", "*", 0)]


def test_everybody_is_subscribed_to_the_groups_retry_topic() -> None:
    assert Subscriptions("g", lambda: 0).topics == ["%RETRY%g"]


def test_the_groups_own_retry_topic_cannot_be_subscribed() -> None:
    with pytest.raises(ConfigError, match="by itself"):
        Subscriptions("g", lambda: 0).add("%RETRY%g", on_message, tags="*")


def test_another_groups_dead_letters_can_be_subscribed() -> None:
    assert Subscriptions("g", lambda: 0).add("%DLQ%h", on_message, tags=None).tags == frozenset()


def test_a_topic_can_be_subscribed_again_after_it_was_given_up() -> None:
    subscriptions = Subscriptions("g", lambda: 0)
    subscriptions.add("orders", on_message, tags="*")
    subscriptions.remove("orders")
    subscriptions.add("orders", on_message, tags="a")
    assert [one.tags for one in subscriptions] == [frozenset({"a"})]


def test_giving_up_what_was_not_subscribed_is_an_error() -> None:
    with pytest.raises(InvalidName):
        Subscriptions("g", lambda: 0).remove("orders")


async def test_a_plain_handler_runs_in_a_thread_of_the_given_pool() -> None:
    with ThreadPoolExecutor(1, thread_name_prefix="pool") as pool:
        work = Subscription("orders", lambda message: threading.current_thread().name).callable(pool)
        assert str(await work("message")).startswith("pool")


def test_a_coroutine_function_is_taken_as_it_is() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert Subscription("orders", on_message).callable(pool) is on_message


# --- where a group begins


def start_rule(link: FakeLink, rule: ConsumeFrom) -> StartRule:
    made = context(link)
    return StartRule(made, RemoteOffsetStore(made, Deliveries(made)), rule, 12_345)


@pytest.mark.parametrize(
    ("rule", "queue", "begins"),
    [
        (ConsumeFrom.FIRST_OFFSET, Q0, (0, "first")),
        (ConsumeFrom.LAST_OFFSET, Q0, (99, "last")),
        (ConsumeFrom.TIMESTAMP, Q0, (12_345, "timestamp")),
        (ConsumeFrom.FIRST_OFFSET, RETRY, (0, "first")),
        (ConsumeFrom.LAST_OFFSET, RETRY, (0, "first")),
        (ConsumeFrom.TIMESTAMP, RETRY, (99, "last")),
    ],
)
async def test_without_a_committed_offset_each_rule_begins_where_rocketmqs_does(
    rule: ConsumeFrom, queue: MessageQueue, begins: tuple[int, str]
) -> None:
    link = FakeLink()
    link.max = 99
    assert await start_rule(link, rule).start_of(queue) == begins


@pytest.mark.parametrize("rule", list(ConsumeFrom))
async def test_a_committed_offset_wins_over_every_rule(rule: ConsumeFrom) -> None:
    link = FakeLink()
    link.max, link.committed["orders", 0] = 99, 5
    assert await start_rule(link, rule).start_of(Q0) == (5, "broker")


async def test_zero_is_a_committed_offset_too() -> None:
    link = FakeLink()
    link.max, link.committed["orders", 0] = 99, 0
    assert await start_rule(link, ConsumeFrom.LAST_OFFSET).start_of(Q0) == (0, "broker")


async def test_an_offset_that_cannot_be_read_is_no_reason_to_begin_anywhere() -> None:
    link = FakeLink()
    link.refuse["query_offset"] = BrokerUnavailable("gone")
    with pytest.raises(BrokerUnavailable):
        await start_rule(link, ConsumeFrom.FIRST_OFFSET).start_of(Q0)


# --- selectors


def test_one_queue_is_always_next() -> None:
    rotation = Rotation([Q0])
    assert [rotation.next() for _ in range(3)] == [Q0] * 3


def test_with_one_broker_only_the_failed_one_is_tried_again() -> None:
    assert Rotation([Q0, Q1], start=0).next_avoiding("broker-a").broker_name == "broker-a"


def test_a_rotation_goes_on_after_it_avoided_a_broker() -> None:
    other = MessageQueue("orders", "broker-b", 0)
    rotation = Rotation([Q0, other], start=0)
    assert rotation.next_avoiding("broker-a") == other
    assert rotation.next() == Q0


def test_the_key_with_the_lowest_hash_has_a_queue_too() -> None:
    key = "polygenelubricants"
    assert java_hash(key) == -(1 << 31)
    assert by_hash([Q0, Q1], key) == Q0


def test_keys_with_one_hash_share_a_queue() -> None:
    queues = [MessageQueue("t", "b", number) for number in range(7)]
    assert by_hash(queues, "Aa") == by_hash(queues, "BB")


# --- what a send result tells


def stored_run(sizes: list[int], spans: list[tuple[int, int]]) -> StoredRun:
    answer = SendRunResult(store_host="127.0.0.1:10911", store_timestamp_ms=5)
    answer.span_starts = np.array([start for start, _ in spans], "<u4")
    answer.span_log_offsets = np.array([log_offset for _, log_offset in spans], "<u8")
    return StoredRun(answer, np.array(sizes, "<u4"))


def test_records_of_a_run_lie_one_after_the_other() -> None:
    run = stored_run([100, 50, 70], [(0, 1000)])
    assert [run.log_offset(index) for index in range(3)] == [1000, 1100, 1150]


def test_a_record_in_a_new_file_is_counted_from_that_files_span() -> None:
    run = stored_run([100, 50, 70, 10], [(0, 1000), (2, 65_536)])
    assert [run.log_offset(index) for index in range(4)] == [1000, 1100, 65_536, 65_606]


def test_a_result_names_the_stored_copy_by_host_and_log_offset() -> None:
    result = SendResult(SendStatus.SEND_OK, "A" * 32, Q0, 7, stored_run([10], [(0, 0x1234)]), 0)
    assert result.offset_message_id == "7F000001" + "00002A9F" + "0000000000001234"
    assert (result.log_offset, result.store_timestamp_ms) == (0x1234, 5)


# --- what a producer journals


def sends(*numbers: int, keys: tuple[str, ...] = ()) -> Sends:
    """Of these call ids, under way."""
    messages = [
        Message("orders", b"x", keys=keys, properties={"order": f"o{number}"}, message_id=f"{number:032X}")
        for number in numbers
    ]
    made = Sends(messages=messages, call_ids=numbers, tries=1)
    for column, element in ((made.commons, template("orders", 0, None)), (made.futures, None), (made.queues, Q0)):
        column.extend([element] * len(numbers))  # type: ignore[list-item]  # of many types
    return made


def flight(under_way: Sends) -> Flight:
    return Flight(BrokerBacklog("broker-a"), under_way, np.array([10] * len(under_way), "<u4"), 3, "h:1", 1.0)


def send_journal(directory: Path, business_key: str | None = None) -> tuple[SendJournal, Any]:
    path = directory / "p.jsonl"
    journal = Journal(path, role="producer", process="p", boot_id="p0", level=Level.FORENSIC)
    return SendJournal(journal, "g", business_key), lambda: journalled(path)


def test_a_try_is_journalled_with_every_send_before_it_leaves(tmp_path: Path) -> None:
    journal, lines = send_journal(tmp_path)
    journal.leaving(flight(sends(1, 2)))
    (line,) = lines()
    assert (line["event"], line["request_seq"], line["broker_name"]) == ("SEND_TRY", 3, "broker-a")
    assert (line["call_ids"], line["tries"], line["topics"]) == ([1, 2], [1, 1], ["orders"])
    assert "business_keys" not in line


@pytest.mark.parametrize(
    ("modes", "told"),
    [(["sync", "sync"], None), (["batch", "batch"], ["batch"]), (["sync", "async"], ["sync", "async"])],
)
def test_how_sends_were_made_is_told_once_where_it_is_the_same(
    tmp_path: Path, modes: list[str], told: list[str] | None
) -> None:
    journal, lines = send_journal(tmp_path)
    both = sends(1, 2)
    both.modes = modes
    journal.leaving(flight(both))
    assert lines()[0].get("modes") == told


@pytest.mark.parametrize(("name", "expected"), [("order", ["o1"]), ("KEYS", ["k1"]), ("absent", [""])])
def test_the_business_key_is_a_property_or_the_first_key(tmp_path: Path, name: str, expected: list[str]) -> None:
    journal, lines = send_journal(tmp_path, name)
    journal.leaving(flight(sends(1, keys=("k1", "k2"))))
    assert lines()[0]["business_keys"] == expected


@pytest.mark.parametrize(
    ("status", "outcome"), [(SendStatus.SEND_OK, "ok"), (SendStatus.FLUSH_DISK_TIMEOUT, "not_ok_status")]
)
def test_a_stored_run_is_journalled_by_how_well_it_is_kept(tmp_path: Path, status: SendStatus, outcome: str) -> None:
    journal, lines = send_journal(tmp_path)
    journal.stored(flight(sends(1)), status)
    assert lines()[0]["outcome"] == outcome


def test_a_lost_run_is_journalled_with_code_and_certainty(tmp_path: Path) -> None:
    journal, lines = send_journal(tmp_path)
    journal.result(flight(sends(1)), SendTimeout("no answer"), "timeout")
    (line,) = lines()
    assert (line["outcome"], line["code"], line["definite"]) == ("timeout", Code.ACCESS_BROKER_TIMEOUT, False)


def test_sends_that_surely_failed_are_told_apart_from_those_that_may_be_stored(tmp_path: Path) -> None:
    journal, lines = send_journal(tmp_path)
    maybe_stored = sends(2)
    maybe_stored.indefinite = True
    for failed in (sends(1), maybe_stored):
        journal.failed(failed, BrokerUnavailable("gone", definite=True))
    told = {line["definite"]: line["call_ids"] for line in lines()}
    assert told == {True: [1], False: [2]}


def test_without_a_journal_nothing_is_prepared() -> None:
    journal = Journal(None, role="producer", process="p", boot_id="p0", level=Level.OFF)
    SendJournal(journal, "g", None).failed(sends(1), DejamqError("x"))


# --- the low-water mark


def test_finishing_out_of_order_moves_the_mark_only_over_what_is_done_without_a_hole() -> None:
    held = ProcessQueue(10)
    held.put([10, 11, 12], [1, 1, 1])
    marks = []
    for offset in (12, 10, 11):
        held.finish(offset)
        marks.append(held.low_water)
    assert marks == [10, 11, 13]


def test_finishing_twice_counts_once() -> None:
    held = ProcessQueue(0)
    held.put([0, 1], [5, 5])
    assert (held.finish(0), held.finish(0)) == (True, False)
    assert held.cached_bytes == 5


def test_what_was_filtered_out_beyond_unfinished_messages_does_not_move_the_mark() -> None:
    held = ProcessQueue(0)
    held.put([0], [1])
    held.advance(100)
    assert held.low_water == 0
    held.finish(0)
    assert held.low_water == 100


def test_room_is_told_at_each_finished_message_while_somebody_waits() -> None:
    held, told = ProcessQueue(0), []
    held.put([0, 1], [1, 1])
    held.on_room = lambda: told.append(len(held))
    held.finish(0)
    held.on_room = None
    held.finish(1)
    assert told == [1]
