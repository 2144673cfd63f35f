"""Messages by key, by unique key and by id: the right ones, all of them, and no others."""

import dataclasses
import errno
import threading
from pathlib import Path

import pytest
from dejamq_broker.store import SYNC_FLUSH, KeyQuery, MessageStore, StoreConfig, StoreError, StoreFull
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.index.file import IndexFile
from dejamq_broker.store.index.keys import key_hash
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.hosts import offset_message_id
from dejamq_proto.records.record import (
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
    encode_properties,
)
from index_making import fill_keyed, keyed_run, offsets_of
from store_making import SMALL, log_files, open_small

T0 = 1_700_000_000_000


def put(store: MessageStore, *words: str, topic: str = "T", sys_flag: int = 0) -> int:
    """One message with these KEYS; its log offset."""
    run = keyed_run([(topic, " ".join(words), "")], sys_flag=sys_flag)
    return int(store.append_run(run).log_offsets[0])


def between(store: MessageStore, begin_ms: int, end_ms: int, key: str = "k") -> list[int]:
    result = store.query(KeyQuery("T", key, begin_ms=begin_ms, end_ms=end_ms))
    return [decode(raw).log_offset for raw in result.records]


def test_a_message_just_appended_is_found(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    assert offsets_of(store, "k0") == []
    offsets = fill_keyed(store, 1)
    assert offsets_of(store, "k0") == offsets
    assert store.indexed == store.log_max


def test_messages_in_all_files_of_log_and_index_are_found(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 700)
    assert len(log_files(tmp_path)) > 3
    for number in range(0, 700, 13):
        assert offsets_of(store, f"k{number}") == [offsets[number]]
    assert len(list((tmp_path / "index").iterdir())) == 8


def test_keys_that_hash_alike_are_told_apart(tmp_path: Path) -> None:
    assert key_hash("T", "Aa") == key_hash("T", "BB")
    store = open_small(tmp_path)
    first = [put(store, "Aa") for _ in range(3)]
    others = [put(store, "BB") for _ in range(3)]
    assert offsets_of(store, "Aa") == first
    assert offsets_of(store, "BB") == others


def test_topics_that_hash_alike_are_told_apart(tmp_path: Path) -> None:
    assert key_hash("TAa", "k") == key_hash("TBB", "k")
    store = open_small(tmp_path)
    first, other = put(store, "k", topic="TAa"), put(store, "k", topic="TBB")
    assert offsets_of(store, "k", topic="TAa") == [first]
    assert offsets_of(store, "k", topic="TBB") == [other]


def test_messages_of_other_keys_take_no_room_in_the_answer(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    wanted = [put(store, "Aa") for _ in range(3)]
    for _ in range(100):
        put(store, "BB")
    result = store.query(KeyQuery("T", "Aa", max_messages=2))
    assert [decode(raw).log_offset for raw in result.records] == wanted[1:]


def test_somebody_who_makes_keys_collide_cannot_keep_a_query_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq_broker.store.index.query.MAX_FOREIGN", 10)
    store = open_small(tmp_path)
    hidden = put(store, "Aa")
    for _ in range(9):
        put(store, "BB")
    assert offsets_of(store, "Aa") == [hidden]
    put(store, "BB")
    assert offsets_of(store, "Aa") == []


def test_time_bounds_are_exact_and_both_included(tmp_path: Path) -> None:
    times = [0, 1, 1, 1, 400, 999, 1000, 1001, 1999, 2000, 5000]
    now_ms = T0
    store = open_small(tmp_path, clock_ms=lambda: now_ms)
    offsets = []
    for ms in times:
        now_ms = T0 + ms
        offsets.append(put(store, "k"))
    for begin in (0, 1, 2, 999, 1000, 1001, 1998, 2000, 4999, 5001):
        for end in (-1, 0, 1, 998, 1000, 1500, 2000, 5000, 9000):
            expected = [offset for offset, ms in zip(offsets, times, strict=True) if begin <= ms <= end]
            assert between(store, T0 + begin, T0 + end) == expected, (begin, end)


def test_time_bounds_hold_over_several_index_files(tmp_path: Path) -> None:
    clock = iter(range(T0, T0 + 1 << 40, 700))
    store = open_small(
        tmp_path, dataclasses.replace(SMALL, max_index_num=5, max_msgs_num_batch=1000), clock_ms=lambda: next(clock)
    )
    stored = [store.append_run(keyed_run([("T", "k", "")])) for _ in range(40)]
    store.query(KeyQuery("T", "k"))
    assert len(list((tmp_path / "index").iterdir())) == 10
    for first in range(0, 40, 3):
        for last in range(first, 40, 5):
            expected = [int(each.log_offsets[0]) for each in stored[first : last + 1]]
            assert between(store, stored[first].store_timestamp_ms, stored[last].store_timestamp_ms) == expected


def test_the_newest_are_answered_in_the_order_of_the_log(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 100)
    assert offsets_of(store, "all") == offsets[-64:]
    few = store.query(KeyQuery("T", "all", max_messages=5))
    assert [decode(raw).log_offset for raw in few.records] == offsets[-5:]
    assert store.query(KeyQuery("T", "all", max_messages=0)).records == []
    assert (few.index_timestamp_ms, few.index_log_offset) == (
        decode(few.records[-1]).store_timestamp_ms,
        offsets[-1],
    )


def test_a_query_by_unique_key_looks_at_unique_keys_only_and_answers_32(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    by_key = put(store, "same")
    sent = store.append_run(keyed_run([("T", "other", "same")] * 40)).log_offsets.tolist()
    assert offsets_of(store, "same", unique=True) == sent[-32:]
    assert offsets_of(store, "same") == [by_key]


def test_a_word_given_twice_answers_its_message_once(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offset = put(store, "k", "k", "x", "k")
    assert offsets_of(store, "k") == [offset]


def test_a_part_of_a_key_is_no_key(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    put(store, "order-17", "b")
    assert offsets_of(store, "order-1") == offsets_of(store, "order-17 b") == offsets_of(store, "") == []


def test_prepared_messages_are_found_and_rolled_back_ones_are_not(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    prepared = put(store, "k", sys_flag=SYS_TRANSACTION_PREPARED)
    put(store, "k", sys_flag=SYS_TRANSACTION_ROLLBACK)
    assert offsets_of(store, "k") == [prepared]


def test_an_answer_holds_no_more_than_its_limit_but_at_least_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 10, body=b"x" * 1000)
    for limit, count in ((100, 1), (3500, 3), (1 << 20, 10)):
        monkeypatch.setattr("dejamq_broker.store.index.query.MAX_BYTES", limit)
        assert offsets_of(store, "all") == offsets[-count:]


def test_with_sync_flush_nothing_is_found_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushing, go_on = threading.Event(), threading.Event()
    real = MappedFile.sync

    def slow(file: MappedFile) -> None:
        flushing.set()
        go_on.wait(10)
        real(file)

    store = open_small(tmp_path, dataclasses.replace(SMALL, flush_disk_type=SYNC_FLUSH))
    (first,) = fill_keyed(store, 1)
    store.durable(store.log_max).result(timeout=10)
    assert offsets_of(store, "all") == [first]
    monkeypatch.setattr(MappedFile, "sync", slow)
    (second,) = fill_keyed(store, 1, first=1)
    promise = store.durable(store.log_max)
    assert flushing.wait(10)
    assert offsets_of(store, "all") == [first]
    assert store.indexed <= store.flushed == second
    go_on.set()
    promise.result(timeout=10)
    assert offsets_of(store, "all") == [first, second]


def test_an_index_that_cannot_be_written_ends_a_query_with_another_word(tmp_path: Path) -> None:
    (tmp_path / "index").touch()
    store = open_small(tmp_path)
    fill_keyed(store, 3)
    with pytest.raises(StoreError, match="File exists; move the folder index away") as refused:
        store.query(KeyQuery("T", "k1"))
    assert not isinstance(refused.value, StoreFull)


def test_what_a_full_disk_keeps_out_of_the_index_is_found_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    offsets = fill_keyed(store, 30)
    assert offsets_of(store, "k29") == [offsets[29]]

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexFile, "put", no_room)
    indexed = store.indexed
    offsets += fill_keyed(store, 40)
    assert store.indexed == indexed < store.log_max
    assert offsets_of(store, "k1") == [offsets[1], offsets[31]]
    assert offsets_of(store, "k39") == [offsets[69]]
    assert offsets_of(store, "k99") == []
    assert [decode(raw).log_offset for raw in store.query(KeyQuery("T", "k1", max_messages=1)).records] == [offsets[31]]
    monkeypatch.undo()
    assert offsets_of(store, "k1") == [offsets[1], offsets[31]]
    assert store.indexed == store.log_max


def test_without_an_index_nothing_is_found_and_switching_it_on_finds_all(tmp_path: Path) -> None:
    store = open_small(tmp_path, dataclasses.replace(SMALL, message_index_enable=False))
    offsets = fill_keyed(store, 50)
    assert offsets_of(store, "k7") == []
    store.close()
    assert not (tmp_path / "index").exists()
    assert not (tmp_path / "abort").exists()
    store = open_small(tmp_path)
    assert offsets_of(store, "k7") == [offsets[7]]
    store.close()
    store = open_small(tmp_path, dataclasses.replace(SMALL, message_index_enable=False))
    fill_keyed(store, 50, first=50)
    assert offsets_of(store, "k7") == [offsets[7]]
    assert offsets_of(store, "k77") == []


@pytest.mark.parametrize("indexed_before", [True, False])
def test_what_expired_is_not_found_and_what_follows_is(tmp_path: Path, indexed_before: bool) -> None:
    config = SMALL if indexed_before else dataclasses.replace(SMALL, message_index_enable=False)
    store = open_small(tmp_path, config)
    offsets = fill_keyed(store, 300)
    store.close()
    log_files(tmp_path)[0].unlink()
    store = open_small(tmp_path)
    assert store.log_min == 65_536
    expired = [offset for offset in offsets if offset < store.log_min]
    assert 0 < len(expired) < 300
    for number, offset in enumerate(offsets):
        assert offsets_of(store, f"k{number}") == ([] if offset in expired else [offset])


def test_a_log_that_expires_while_it_is_not_indexed_is_passed_over(tmp_path: Path) -> None:
    """The index goes on at the first record that is left."""
    store = open_small(tmp_path, dataclasses.replace(SMALL, message_index_enable=False))
    offsets = fill_keyed(store, 300)
    store.inspect().late._enabled = True
    first, *rest = store.inspect().log.files.files
    store.inspect().log.files.files = tuple(rest)
    assert offsets_of(store, "k0") == []
    assert offsets_of(store, "k299") == [offsets[-1]]
    assert store.indexed == store.log_max
    store.inspect().log.files.files = (first, *rest)


def test_a_message_is_found_by_its_offset_id(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    (offset,) = fill_keyed(store, 1)
    raw = store.record_by_id(offset_message_id(("127.0.0.1", 10911), offset))
    assert raw is not None
    assert decode(raw).log_offset == offset
    assert store.record_by_id(offset_message_id(("127.0.0.1", 10911), offset + 1)) is None


def test_a_message_stored_by_an_ipv6_broker_is_found_by_its_long_id(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    host = ("fe80::1", 10911)
    offset = int(store.put(Record("T", 0, b"x", encode_properties({"KEYS": "six"}), store_host=host)).log_offsets[0])
    message_id = offset_message_id(host, offset)
    assert len(message_id) == 56
    raw = store.record_by_id(message_id)
    assert raw is not None
    assert decode(raw).body == b"x"
    assert offsets_of(store, "six") == [offset]


def test_an_id_of_another_broker_says_which(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    (offset,) = fill_keyed(store, 1)
    for host, says in ((("10.1.2.3", 10911), r"10\.1\.2\.3:10911"), (("::1", 7), r"\[::1\]:7")):
        with pytest.raises(DejamqError, match=says) as refused:
            store.record_by_id(offset_message_id(host, offset))
        assert refused.value.code == Code.QUERY_NOT_FOUND


@pytest.mark.parametrize("text", ["", "order-17", "7F" * 15, "7F" * 17, "zz" * 16, "7F000001"])
def test_text_that_is_no_offset_id_is_refused(tmp_path: Path, text: str) -> None:
    store = open_small(tmp_path)
    with pytest.raises(DejamqError, match="offset message id") as refused:
        store.record_by_id(text)
    assert refused.value.code == Code.INVALID_PARAMETER


def test_the_settings_are_rocketmqs() -> None:
    config = StoreConfig()
    assert (config.max_hash_slot_num, config.max_index_num, config.max_msgs_num_batch) == (5_000_000, 20_000_000, 64)
    assert config.message_index_enable
    assert not config.message_index_safe
