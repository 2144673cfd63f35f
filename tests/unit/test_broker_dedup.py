"""Messages sent again: what a broker does not store a second time, and what it answers then."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_wire import SMALL, a_run
from dejamq_broker.store import MessageStore, StoreFull
from dejamq_broker.writing.record_writer import RecordWriter
from dejamq_proto.codes import Code
from dejamq_proto.records.record import Outgoing, encode_properties
from dejamq_proto.wire.messages import SendRun, SendRunResult


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        yield made


def a_dedup_run(*messages: tuple[str, int, bytes, dict[str, str]], **more: Any) -> SendRun:
    """Of messages by topic, queue id, body and properties."""
    queues = list(dict.fromkeys((topic, queue_id) for topic, queue_id, _, _ in messages))
    records = [
        Outgoing.to(topic).encode(queue_id, 1_700_000_000_000, body, encode_properties(properties))
        for topic, queue_id, body, properties in messages
    ]
    index = [queues.index((topic, queue_id)) for topic, queue_id, _, _ in messages] if len(queues) > 1 else []
    return SendRun(
        client_id="tester", boot_id="tester-boot", seq=1, group="producers", queues=queues,
        sizes=np.array(list(map(len, records)), "<u4"), queue_index=np.array(index, "<u4"), dedup=True,
        records=records, **more,
    )  # fmt: skip


def send(parts: Parts, body: bytes, own_id: str = "17", topic: str = "orders", **more: Any) -> SendRunResult:
    properties = {"UNIQ_KEY": body.decode(), "DEDUP_ID": own_id} | more.pop("properties", {})
    run = a_dedup_run((topic, more.pop("queue_id", 0), body, properties), **more)
    return parts.outcome(run).result


def place(result: SendRunResult, number: int = 0) -> tuple[int, int, int]:
    """Queue id, queue offset and log offset."""
    queue_id = int(result.queue_ids[number]) if len(result.queue_ids) else 0
    return queue_id, int(result.queue_offsets[number]), int(result.span_log_offsets[number])


def test_a_message_with_a_known_id_is_answered_with_the_first_ones_place_and_not_stored(parts: Parts) -> None:
    parts.send("orders", b"before")
    first, again = send(parts, b"first"), send(parts, b"again", queue_id=1)
    assert (first.code, first.duplicates.tolist()) == (Code.SUCCESS, [])
    assert (again.code, again.duplicates.tolist()) == (Code.SUCCESS, [0])
    assert place(again) == place(first) == (0, 1, place(first)[2])
    assert [record.body for record in parts.everywhere("orders")] == [b"before", b"first"]


def test_a_client_made_id_counts_where_the_message_says_so(parts: Parts) -> None:
    by_key = {"UNIQ_KEY": "k1", "DEDUP_BY": "UNIQ_KEY"}
    for _ in range(2):
        result = parts.outcome(a_dedup_run(("orders", 0, b"x", by_key), ("orders", 0, b"y", {"UNIQ_KEY": "k1"}))).result
    assert result.duplicates.tolist() == [0]
    assert [record.body for record in parts.records("orders")] == [b"x", b"y", b"y"]


def test_a_given_id_and_a_client_made_one_never_meet(parts: Parts) -> None:
    send(parts, b"x", "k1")
    run = a_dedup_run(("orders", 0, b"y", {"UNIQ_KEY": "k1", "DEDUP_BY": "UNIQ_KEY"}))
    assert not len(parts.outcome(run).result.duplicates)


def test_what_is_new_in_a_run_is_stored_and_the_rest_is_not(parts: Parts) -> None:
    send(parts, b"b", "2")
    run = a_dedup_run(
        *(("orders", number % 2, bytes([97 + number]), {"DEDUP_ID": str(number)}) for number in range(60))
    )
    result = parts.outcome(run).result
    assert result.duplicates.tolist() == [2]
    assert place(result, 2) == (0, 0, 0)
    assert [place(result, number)[:2] for number in (0, 1, 3, 4)] == [(0, 1), (1, 0), (1, 1), (0, 2)]
    bodies = {record.log_offset: record.body for record in parts.everywhere("orders")}
    assert [bodies[place(result, number)[2]] for number in (0, 1, 3, 59)] == [b"a", b"b", b"d", bytes([97 + 59])]
    assert len(bodies) == 60


def test_of_two_messages_of_one_run_with_one_id_the_first_is_stored(parts: Parts) -> None:
    messages = [("orders", queue_id, body, {"DEDUP_ID": "1"}) for queue_id, body in ((1, b"a"), (0, b"b"))]
    result = parts.outcome(a_dedup_run(*messages)).result
    assert result.duplicates.tolist() == [1]
    assert place(result, 0) == place(result, 1) == (1, 0, 0)
    assert [record.body for record in parts.everywhere("orders")] == [b"a"]


def test_each_topic_has_ids_of_its_own(parts: Parts) -> None:
    send(parts, b"x")
    assert not len(send(parts, b"x", topic="others").duplicates)
    run = a_dedup_run(("orders", 0, b"y", {"DEDUP_ID": "17"}), ("third", 0, b"z", {"DEDUP_ID": "17"}))
    assert parts.outcome(run).result.duplicates.tolist() == [0]


def test_a_run_that_does_not_ask_for_it_is_stored_as_it_is(parts: Parts) -> None:
    for _ in range(2):
        assert not len(parts.outcome(a_run("orders", [b"x"], properties={"DEDUP_ID": "1"})).result.duplicates)
    assert len(parts.records("orders")) == 2


def test_an_id_is_forgotten_when_its_time_is_over(tmp_path: Path) -> None:
    with parts_in(tmp_path, dedup_window_ms=1) as parts:
        send(parts, b"x")
        stored_ms = parts.records("orders")[0].store_timestamp_ms
        while clock_ms() <= stored_ms + 1:
            pass
        assert not len(send(parts, b"y").duplicates)


def test_newer_ids_push_out_older_ones(tmp_path: Path) -> None:
    with parts_in(tmp_path, dedup_window_ids=2) as parts:
        for own_id in ("1", "2", "3"):
            send(parts, b"x", own_id)
        assert [send(parts, b"x", own_id).duplicates.tolist() for own_id in ("3", "2", "1")] == [[0], [0], []]


def test_without_windows_a_run_that_asks_for_them_is_refused(tmp_path: Path) -> None:
    with parts_in(tmp_path, dedup_window_ids=0) as parts:
        assert send(parts, b"x").code == Code.REQUEST_CODE_NOT_SUPPORTED
        assert parts.store.log_max == 0


def test_a_delayed_message_that_is_sent_again_waits_once(parts: Parts) -> None:
    for _ in range(2):
        result = send(parts, b"x", queue_id=1, properties={"DELAY": "3"}, rewrite=True)
    assert result.duplicates.tolist() == [0]
    assert place(result)[:2] == (1, 0)
    assert len(parts.records("SCHEDULE_TOPIC_XXXX", 2)) == 1


def test_retries_of_consumers_come_again_on_purpose(parts: Parts) -> None:
    for _ in range(2):
        assert not len(send(parts, b"x", topic="%RETRY%g", rewrite=True).duplicates)


def test_a_bad_record_among_new_ones_is_named_by_its_number_in_the_run(parts: Parts) -> None:
    send(parts, b"x", "0")
    messages = [("orders", 0, body, {"DEDUP_ID": own_id}) for own_id, body in (("0", b"x"), ("1", b"y"), ("2", b"z"))]
    run = a_dedup_run(*messages)
    broken = bytearray(run.records[2])
    broken[-len(b"\x06orders\x00\x0dDEDUP_ID\x012\x02") - 1] ^= 1
    run.records = (run.records[0], run.records[1], bytes(broken))
    result = parts.outcome(run).result
    assert (result.code, result.bad_record) == (Code.MESSAGE_ILLEGAL, 2)
    assert len(parts.records("orders")) == 1


def test_after_a_failure_half_way_only_the_rest_is_stored(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    delayed = [("orders", 0, bytes([97 + n]), {"DEDUP_ID": str(n), "DELAY": "3"}) for n in range(3)]
    put, left = RecordWriter.put, [2]

    def failing(self: RecordWriter, *record: Any) -> Any:
        if not left[0]:
            raise StoreFull("no room")
        left[0] -= 1
        return put(self, *record)

    with monkeypatch.context() as patched:
        patched.setattr(RecordWriter, "put", failing)
        assert parts.outcome(a_dedup_run(*delayed, rewrite=True)).result.code == Code.SYSTEM_ERROR
    result = parts.outcome(a_dedup_run(*delayed, rewrite=True)).result
    assert (result.code, result.duplicates.tolist()) == (Code.SUCCESS, [0, 1])
    assert [record.body for record in parts.records("SCHEDULE_TOPIC_XXXX", 2)] == [b"a", b"b", b"c"]


def test_a_repeat_is_durable_when_its_first_message_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    durable = MessageStore.durable

    def noting(self: MessageStore, end: int) -> Any:
        asked.append(end)
        return durable(self, end)

    monkeypatch.setattr(MessageStore, "durable", noting)
    with parts_in(tmp_path, store=dataclasses.replace(SMALL, flush_disk_type="SYNC_FLUSH")) as parts:
        send(parts, b"x")
        parts.send("orders", b"behind", no_wait_store=True)
        send(parts, b"x")
    assert asked == [asked[0], asked[0]]


def test_the_journal_tells_of_a_refused_repeat_and_of_the_first_message(parts: Parts) -> None:
    send(parts, b"first")
    send(parts, b"again", queue_id=1)
    (line,) = parts.events("REPEAT")
    assert (line["unique_keys"], line["first_unique_keys"]) == (["again"], ["first"])
    assert line["topics"] == ["orders"]
    assert (line["queue_ids"], line["queue_offsets"], line["log_offsets"]) == ([0], [0], [0])


# At a start, the windows are those of the log.


def test_a_start_knows_the_ids_of_the_log(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        first = send(parts, b"x", queue_id=1)
        send(parts, b"y", "delayed", properties={"DELAY": "3"}, rewrite=True)
        by_key = [("orders", 0, b"z", {"UNIQ_KEY": f"{n}", "DEDUP_BY": "UNIQ_KEY"}) for n in range(100)]
        parts.outcome(a_dedup_run(*by_key))
    with parts_in(tmp_path) as parts:
        again = send(parts, b"x")
        assert again.duplicates.tolist() == [0]
        assert place(again) == (1, *place(first)[1:])
        assert send(parts, b"y", "delayed", properties={"DELAY": "3"}, rewrite=True).duplicates.tolist() == [0]
        assert parts.outcome(a_dedup_run(*by_key)).result.duplicates.tolist() == list(range(100))


def test_what_a_start_cut_off_the_log_is_forgotten(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        send(parts, b"x", "kept")
        end = parts.store.log_max
        send(parts, b"y", "lost")
    log = tmp_path / "store" / "commitlog" / f"{0:020}"
    whole = bytearray(log.read_bytes())
    whole[end + 60 : end + 200] = bytes(140)
    log.write_bytes(whole)
    with parts_in(tmp_path) as parts:
        assert send(parts, b"x", "kept").duplicates.tolist() == [0]
        assert send(parts, b"y", "lost").duplicates.tolist() == []


def test_a_deleted_topic_begins_without_ids(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        send(parts, b"x")
        parts.topics.delete("orders")
        parts.store.delete_topic("orders")
        parts.dedup.forget("orders")
        assert not len(send(parts, b"x", "other").duplicates)
    with parts_in(tmp_path) as parts:
        assert not len(send(parts, b"x").duplicates)
        assert send(parts, b"x", "other").duplicates.tolist() == [0]


def test_a_copy_that_the_broker_made_of_a_message_is_no_first_message(tmp_path: Path) -> None:
    with parts_in(tmp_path) as parts:
        copies = {"DEDUP_ID": "1", "REAL_TOPIC": "orders"}, {"DEDUP_ID": "2", "REPLAY_OF": "x"}
        for properties in copies:
            parts.outcome(a_run("orders", [b"x"], properties=properties))
    with parts_in(tmp_path) as parts:
        assert not any(len(send(parts, b"x", own_id).duplicates) for own_id in ("1", "2"))


def test_a_message_whose_record_is_gone_is_stored_again(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    send(parts, b"x")
    monkeypatch.setattr(MessageStore, "record_at", lambda self, log_offset: None)
    assert not len(send(parts, b"y").duplicates)
