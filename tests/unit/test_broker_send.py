"""What a broker takes and what it refuses, in RocketMQ's order of checks; a refused run stores nothing."""

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_parts import Parts, parts_in
from broker_wire import SMALL, a_run
from dejamq_broker.store import StoreConfig, StoreFull
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code
from dejamq_proto.records.record import SYS_TRANSACTION_PREPARED, Outgoing, encode_properties
from dejamq_proto.wire.messages import SendRun


def small_store(**changes: Any) -> StoreConfig:
    return dataclasses.replace(SMALL, **changes)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        yield made


def test_a_run_is_stored_with_consecutive_queue_offsets(parts: Parts) -> None:
    result = parts.send("orders", b"one", b"two", b"three")
    assert result.code == Code.SUCCESS
    assert result.queue_offsets.tolist() == [0, 1, 2]
    assert [record.body for record in parts.records("orders")] == [b"one", b"two", b"three"]


def test_the_next_run_continues_the_queue(parts: Parts) -> None:
    parts.send("orders", b"one")
    assert parts.send("orders", b"two").queue_offsets.tolist() == [1]


def test_the_answer_has_the_number_of_its_run(parts: Parts) -> None:
    assert parts.send("orders", b"x", seq=77).seq == 77
    assert parts.send("SCHEDULE_TOPIC_XXXX", b"x", seq=78).seq == 78


def test_the_log_offset_of_the_answer_is_where_the_record_begins(parts: Parts) -> None:
    parts.send("orders", b"first")
    result = parts.send("orders", b"second")
    raw = parts.store.record_at(int(result.span_log_offsets[0]))
    assert raw is not None
    assert b"second" in raw


def test_the_broker_fills_in_where_a_message_was_born_and_stored(parts: Parts) -> None:
    parts.send("orders", b"x")
    (record,) = parts.records("orders")
    assert record.born_host == ("10.0.0.1", 4711)
    assert record.store_host == ("127.0.0.1", 10911)
    assert record.store_timestamp_ms > 0


def test_a_first_send_makes_the_topic_with_as_many_queues_as_the_client_wants(parts: Parts) -> None:
    parts.send("orders", b"x", default_queue_nums=2)
    config = parts.topics.get("orders")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (2, 2, 6)


def test_without_automatic_topics_an_unknown_one_is_refused(tmp_path: Path) -> None:
    with parts_in(tmp_path, auto_create_topic_enable=False) as parts:
        assert parts.send("orders", b"x").code == Code.TOPIC_NOT_EXIST
        assert parts.store.log_max == 0


@pytest.mark.parametrize(
    "topic",
    [
        "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    ],
)  # fmt: skip
def test_a_topic_of_the_broker_itself_is_not_for_sending(parts: Parts, topic: str) -> None:
    result = parts.send(topic, b"x")
    assert result.code == Code.NO_PERMISSION
    assert topic in result.remark
    assert parts.store.log_max == 0


@pytest.mark.parametrize("topic", ["   ", "a b", "ä", "a/b", "x" * 128])
def test_a_topic_with_an_impossible_name_is_refused(parts: Parts, topic: str) -> None:
    assert parts.send(topic, b"x").code == Code.INVALID_PARAMETER
    assert parts.topics.get(topic) is None


def test_the_name_is_looked_at_before_whether_the_topic_exists(tmp_path: Path) -> None:
    with parts_in(tmp_path, auto_create_topic_enable=False) as parts:
        assert parts.send("a b", b"x").code == Code.INVALID_PARAMETER


def test_a_queue_beyond_the_last_is_refused(parts: Parts) -> None:
    parts.topics.update(TopicConfig("orders", 2, 2))
    result = parts.send("orders", b"x", queue_id=2)
    assert result.code == Code.INVALID_PARAMETER
    assert "2 queues" in result.remark


def test_a_queue_that_took_messages_is_refused_from_the_moment_on_that_its_topic_has_it_no_more(parts: Parts) -> None:
    parts.topics.update(TopicConfig("orders", 4, 4))
    assert parts.send("orders", b"x", queue_id=3).code == Code.SUCCESS
    parts.topics.update(TopicConfig("orders", 2, 2))
    assert parts.send("orders", b"y", queue_id=3).code == Code.INVALID_PARAMETER
    parts.topics.update(TopicConfig("orders", 4, 4))
    assert parts.send("orders", b"z", queue_id=3).code == Code.SUCCESS
    assert [record.body for record in parts.records("orders", 3)] == [b"x", b"z"]


def test_a_topic_that_was_deleted_is_looked_for_again(tmp_path: Path) -> None:
    with parts_in(tmp_path, auto_create_topic_enable=False) as parts:
        parts.topics.update(TopicConfig("orders", 4, 4))
        assert parts.send("orders", b"x").code == Code.SUCCESS
        parts.topics.delete("orders")
        assert parts.send("orders", b"y").code == Code.TOPIC_NOT_EXIST


def test_a_topic_that_took_messages_and_has_an_order_now_is_refused_by_a_broker_that_may_not_be_written(
    parts: Parts,
) -> None:
    parts.send("orders", b"x")
    parts.sender.writable = False
    assert parts.send("orders", b"y").code == Code.SUCCESS
    parts.topics.mark_ordered(["orders"])
    assert parts.send("orders", b"z").code == Code.NO_PERMISSION


def test_a_topic_with_an_order_is_refused_as_soon_as_the_broker_may_not_be_written(parts: Parts) -> None:
    parts.send("orders", b"x")
    parts.topics.mark_ordered(["orders"])
    assert parts.send("orders", b"y").code == Code.SUCCESS
    parts.sender.writable = False
    assert parts.send("orders", b"z").code == Code.NO_PERMISSION


def test_queues_of_a_run_that_is_rewritten_are_looked_at_all_the_same(parts: Parts) -> None:
    parts.topics.update(TopicConfig("orders", 2, 2))
    assert parts.send("orders", b"x", queue_id=2, rewrite=True).code == Code.INVALID_PARAMETER


def test_a_topic_that_may_not_be_written_takes_messages_all_the_same_because_clients_obey_the_route(
    parts: Parts,
) -> None:
    parts.topics.update(TopicConfig("orders", 1, 1, perm=4))
    assert parts.send("orders", b"x").code == Code.SUCCESS


def test_a_body_over_the_limit_is_refused_and_named(tmp_path: Path) -> None:
    with parts_in(tmp_path, store=small_store(max_message_size=10)) as parts:
        result = parts.send("orders", b"short", b"much too long", b"short")
        assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 1)
        assert parts.store.log_max == 0


def test_a_body_of_exactly_the_limit_is_taken(tmp_path: Path) -> None:
    with parts_in(tmp_path, store=small_store(max_message_size=10)) as parts:
        assert parts.send("orders", b"0123456789").code == Code.SUCCESS


def test_a_message_without_a_body_is_refused_and_named(parts: Parts) -> None:
    result = parts.send("orders", b"one", b"")
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 1)
    assert parts.store.log_max == 0


def test_a_half_message_is_refused_because_transactions_are_not_there_yet(parts: Parts) -> None:
    record = Outgoing.to("orders", sys_flag=SYS_TRANSACTION_PREPARED).encode(0, 1, b"x", b"")
    run = SendRun(queues=[("orders", 0)], sizes=np.array([len(record)], "<u4"), records=[record])
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)
    assert "transaction" in result.remark


def test_a_record_for_another_queue_than_announced_is_named(parts: Parts) -> None:
    run = a_run("orders", [b"x"], queue_id=1)
    run.queues = [("orders", 0)]
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)
    assert parts.store.log_max == 0


def test_a_record_of_another_topic_than_announced_is_named(parts: Parts) -> None:
    run = a_run("orders", [b"x"])
    run.queues = [("bills", 0)]
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 0)


def test_one_bad_record_keeps_the_whole_run_out(parts: Parts) -> None:
    run = a_run("orders", [b"good", b"bad", b"good"])
    spoiled = bytearray(run.records[1])
    spoiled[spoiled.index(b"bad")] ^= 1
    run.records = [run.records[0], bytes(spoiled), run.records[2]]
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 1)
    assert parts.store.log_max == 0


def test_one_run_to_two_queues_counts_each_queue_by_itself(parts: Parts) -> None:
    first, second = a_run("orders", [b"a", b"c"]), a_run("orders", [b"b"], queue_id=1)
    records = [first.records[0], second.records[0], first.records[1]]
    run = SendRun(
        queues=[("orders", 0), ("orders", 1)], queue_index=np.array([0, 1, 0], "<u4"),
        sizes=np.array([len(record) for record in records], "<u4"), records=records,
    )  # fmt: skip
    assert parts.outcome(run).result.queue_offsets.tolist() == [0, 0, 1]
    assert [record.body for record in parts.records("orders", 0)] == [b"a", b"c"]
    assert [record.body for record in parts.records("orders", 1)] == [b"b"]


def test_a_closing_broker_refuses_definitely_and_stores_nothing(parts: Parts) -> None:
    parts.sender.close()
    result = parts.send("orders", b"x")
    assert result.code == Code.SERVICE_NOT_AVAILABLE
    assert parts.store.log_max == 0


def test_a_closing_broker_makes_no_topic_either(parts: Parts) -> None:
    parts.sender.close()
    parts.send("orders", b"x")
    assert parts.topics.get("orders") is None


def test_a_delayed_message_waits_in_its_levels_queue_with_its_real_place(parts: Parts) -> None:
    parts.send("orders", b"later", rewrite=True, properties={"DELAY": "3"})
    assert parts.everywhere("orders") == []
    (waiting,) = parts.records("SCHEDULE_TOPIC_XXXX", 2)
    assert waiting.properties["REAL_TOPIC"] == "orders"
    assert waiting.properties["REAL_QID"] == "0"
    assert waiting.body == b"later"


def test_the_entry_of_a_delayed_message_says_when_it_is_due(parts: Parts) -> None:
    parts.send("orders", b"later", rewrite=True, properties={"DELAY": "1"})
    (waiting,) = parts.records("SCHEDULE_TOPIC_XXXX", 0)
    due_ms = parts.store.tags_code_at("SCHEDULE_TOPIC_XXXX", 0, 0)
    assert due_ms == waiting.store_timestamp_ms + 1000


def test_a_level_above_the_last_waits_in_the_last_queue(parts: Parts) -> None:
    parts.send("orders", b"later", rewrite=True, properties={"DELAY": "99"})
    (waiting,) = parts.records("SCHEDULE_TOPIC_XXXX", 17)
    assert waiting.properties["DELAY"] == "18"


def test_every_stored_run_has_its_line_in_the_journal(parts: Parts) -> None:
    result = parts.send("orders", b"one", b"two", seq=5)
    (append,) = parts.events("APPEND")
    assert (append["origin"], append["client_id"], append["request_seq"]) == ("client", "tester", 5)
    assert append["queue_offsets"] == result.queue_offsets.tolist()
    assert [record.properties["UNIQ_KEY"] for record in parts.records("orders")] == append["unique_keys"]


def test_a_refused_run_leaves_no_line(parts: Parts) -> None:
    parts.send("SELF_TEST_TOPIC", b"x")
    assert parts.events("APPEND") == []


def test_with_asynchronous_flush_nobody_waits_for_the_disk(parts: Parts) -> None:
    assert parts.outcome(a_run("orders", [b"x"])).durable is None


def test_with_synchronous_flush_the_answer_waits_unless_the_run_says_otherwise(tmp_path: Path) -> None:
    with parts_in(tmp_path, store=small_store(flush_disk_type="SYNC_FLUSH")) as parts:
        waiting = parts.outcome(a_run("orders", [b"x"])).durable
        assert waiting is not None
        waiting.result(10)
        assert parts.outcome(a_run("orders", [b"y"], no_wait_store=True)).durable is None


def test_a_full_disk_refuses_and_another_broker_may_do_better(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFull("no room")

    monkeypatch.setattr(parts.store, "append_run", full)
    monkeypatch.setattr(parts.store, "append_few", full)
    assert parts.send("orders", b"x").code == Code.SERVICE_NOT_AVAILABLE
    assert parts.send("orders", *[b"x"] * 100).code == Code.SERVICE_NOT_AVAILABLE


def test_records_rewritten_one_by_one_tell_when_only_some_are_stored(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, calls = parts.store.put, []

    def one_then_full(record: object) -> object:
        calls.append(record)
        if len(calls) > 1:
            raise StoreFull("no room")
        return put(record)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(parts.store, "put", one_then_full)
    result = parts.send("orders", b"a", b"b", rewrite=True, properties={"DELAY": "1"})
    assert result.code == Code.SYSTEM_ERROR
    assert "only 1 of 2" in result.remark


def test_an_empty_property_value_is_not_kept_as_in_rocketmq(parts: Parts) -> None:
    record = Outgoing.to("orders").encode(0, 1, b"x", encode_properties({"UNIQ_KEY": "k"}) + b"empty\x01\x02")
    run = SendRun(queues=[("orders", 0)], sizes=np.array([len(record)], "<u4"), records=[record])
    assert parts.outcome(run).result.code == Code.SUCCESS
    (stored,) = parts.records("orders")
    assert stored.properties == {"UNIQ_KEY": "k"}


def with_properties(size: int) -> bytes:
    """A record for queue 0 of ``orders`` whose properties take this many bytes."""
    record = Outgoing.to("orders").encode(0, 1, b"x", b"")
    properties = b"KEYS\x01".ljust(size - 1, b"k") + b"\x02"
    raw = bytearray(record[:-2] + struct.pack(">H", size) + properties)
    raw[:4] = struct.pack(">i", len(raw))
    return bytes(raw)


@pytest.mark.parametrize(("size", "code", "bad"), [(32_767, Code.SUCCESS, -1), (32_768, Code.MESSAGE_ILLEGAL, 1)])
def test_properties_of_32_kib_are_too_long_and_one_byte_less_is_taken(
    parts: Parts, size: int, code: Code, bad: int
) -> None:
    records = [with_properties(100), with_properties(size)]
    run = SendRun(queues=[("orders", 0)], sizes=np.array([len(each) for each in records], "<u4"), records=records)
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (code, bad)
    assert len(parts.everywhere("orders")) == (2 if code == Code.SUCCESS else 0)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("t" * 127, Code.SUCCESS),
        ("%RETRY%".ljust(255, "g"), Code.SUCCESS),
        ("%RETRY%".ljust(256, "g"), Code.INVALID_PARAMETER),
    ],
)
def test_a_topic_may_have_127_characters_and_one_for_retries_255(parts: Parts, topic: str, code: Code) -> None:
    assert parts.send(topic, b"x").code == code
    assert [record.topic for record in parts.everywhere(topic)] == [topic] * (code == Code.SUCCESS)


@pytest.mark.parametrize(("ordered", "code"), [(True, Code.NO_PERMISSION), (False, Code.SUCCESS)])
def test_a_broker_that_may_not_be_written_refuses_topics_with_an_order_only(
    tmp_path: Path, ordered: bool, code: Code
) -> None:
    with parts_in(tmp_path, broker_permission=4) as parts:
        parts.topics.update(TopicConfig("orders", 1, 1, order=ordered))
        assert parts.send("orders", b"x").code == code


def test_a_run_that_leaves_the_queue_to_the_broker_is_told_which_one_it_was(parts: Parts) -> None:
    parts.topics.update(TopicConfig("orders", 4, 4))
    seen: set[int] = set()
    for number in range(60):
        result = parts.send("orders", b"%d" % number, b"second", queue_id=-1)
        assert result.code == Code.SUCCESS
        first, second = result.queue_ids.tolist()
        assert first == second
        found = {record.body: record.queue_id for record in parts.records("orders", first)}
        assert found[b"%d" % number] == first
        seen.add(first)
    assert seen == {0, 1, 2, 3}


def test_a_run_to_chosen_queues_is_told_no_queue_ids(parts: Parts) -> None:
    assert parts.send("orders", b"x").queue_ids.tolist() == []


@pytest.mark.parametrize(("topic", "code"), [("bad topic!", 29), ("SCHEDULE_TOPIC_XXXX", 16)])
def test_a_topic_that_may_not_be_sent_to_is_refused_without_a_queue_too(parts: Parts, topic: str, code: int) -> None:
    assert parts.send(topic, b"x", queue_id=-1).code == code


def test_a_damaged_run_without_a_queue_is_refused(parts: Parts) -> None:
    run = a_run("orders", [b"body"], queue_id=-1)
    raw = bytearray(run.records[0])
    raw[90] ^= 1  # in the body
    run.records = [bytes(raw)]
    assert parts.outcome(run).result.code == Code.MESSAGE_ILLEGAL
    assert parts.everywhere("orders") == []


def test_of_a_run_without_a_queue_the_record_that_cannot_be_read_is_named(parts: Parts) -> None:
    run = a_run("orders", [b"first", b"second"], queue_id=-1)
    raw = bytearray(b"".join(run.records))
    raw[raw.rindex(b"orders")] = 0xFF  # no UTF-8
    run.records = [bytes(raw)]
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 1)
    assert parts.everywhere("orders") == []
