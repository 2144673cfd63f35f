"""Appending: dense offsets, file ends, refusals."""

import errno
import os
import resource
import threading
from pathlib import Path

import pytest
from dejamq_broker.store import MessageStore, StoreClosed, StoreConfig, StoreError, StoreFull
from dejamq_broker.store.files.errors import StoreSlow
from dejamq_broker.store.files.file_queue import FileQueue
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log import next_file
from dejamq_proto.codes import Code, MessageTooLarge
from dejamq_proto.records.record import (
    MAGIC_BLANK,
    PAIR,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    BadRecord,
    Record,
    decode,
    encode_properties,
    tags_code,
)
from msgspec.structs import replace
from store_making import bodies, bodies_of, fill_queue, open_small, records_of, run_of, settle, until


def test_records_of_a_run_get_dense_offsets_in_each_queue(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    first = store.append_run(run_of([("T", 0, b"a"), ("T", 1, b"b"), ("T", 0, b"c"), ("U", 0, b"d"), ("T", 0, b"e")]))
    second = store.append_run(run_of([("U", 0, b"f"), ("T", 0, b"g")]))
    settle(store)
    assert first.queue_offsets.tolist() == [0, 0, 1, 0, 2]
    assert second.queue_offsets.tolist() == [1, 3]
    assert bodies_of(store, "T", 0) == [b"a", b"c", b"e", b"g"]
    assert bodies_of(store, "U", 0) == [b"d", b"f"]
    assert sorted(store.queues()) == [("T", 0), ("T", 1), ("U", 0)]
    store.close()


def test_the_stored_record_carries_what_the_broker_fills_in(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 3, b"first")]))
    appended = store.append_run(run_of([("T", 3, b"second")], tag="TagA"))
    raw = store.record_at(int(appended.log_offsets[0]))
    assert raw is not None
    record = decode(raw)
    assert (record.queue_offset, record.log_offset) == (1, appended.log_offsets[0])
    assert (record.store_host, record.born_host) == (("127.0.0.1", 10911), ("127.0.0.1", 10911))
    assert record.store_timestamp_ms == appended.store_timestamp_ms
    assert record.offset_message_id == f"7F00000100002A9F{appended.log_offsets[0]:016X}"
    settle(store)
    assert store.tags_code_at("T", 3, 1) == tags_code("TagA")
    store.close()


def test_a_run_is_filled_in_where_it_is_when_it_may_be_written(tmp_path: Path) -> None:
    store, runs = open_small(tmp_path), [run_of([("T", 0, body) for body in bodies(40)]) for _ in range(2)]
    kept, given = runs[0].run.data, runs[1].run.data.copy()
    runs[1] = replace(runs[1], run=replace(runs[1].run, data=given))
    before = kept.tobytes()
    first, second = map(store.append_run, runs)
    assert kept.tobytes() == before
    assert given.tobytes() == store.inspect().log.files.read(first.end_log_offset, len(given))
    assert decode(given.data).queue_offset == second.queue_offsets[0] == 40
    store.close()


def test_a_run_is_split_between_two_records_where_a_file_ends(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = bodies(64, 1024)
    store.append_run(run_of([("T", 0, b"before")]))
    appended = store.append_run(run_of([("T", 0, body) for body in sent]))
    assert [log_offset for _, log_offset in appended.spans][1:] == [65_536]
    first, second = appended.spans
    blank_at = int(appended.log_offsets[second[0] - 1]) + 1024 + 92
    blank = (tmp_path / "commitlog" / "00000000000000000000").read_bytes()[blank_at : blank_at + 8]
    assert PAIR.unpack(blank) == (65_536 - blank_at, MAGIC_BLANK)
    assert first == (0, int(appended.log_offsets[0]))
    settle(store)
    assert bodies_of(store) == [b"before", *sent]
    store.close()


def test_a_run_longer_than_a_file_fills_several(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    sent = bodies(300, 1000)
    appended = store.append_run(run_of([("T", 0, body) for body in sent]))
    assert len(appended.spans) == 5
    settle(store)
    assert bodies_of(store) == sent
    store.close()


def test_a_file_always_keeps_eight_bytes_to_spare(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    overhead = 91 + 1
    fits = store.append_run(run_of([("T", 0, b"x" * (65_536 - 8 - overhead))]))
    rolled = store.append_run(run_of([("T", 0, b"y" * (65_536 - 8 - overhead))]))
    assert (fits.end_log_offset, rolled.spans) == (65_528, [(0, 65_536)])
    settle(store)
    store.close()
    again = open_small(tmp_path)
    assert [len(body) for body in bodies_of(again)] == [65_436, 65_436]
    again.close()


def test_store_time_never_goes_back_even_after_a_restart(tmp_path: Path) -> None:
    clock = iter([2000, 1000, 3000]).__next__
    store = open_small(tmp_path, clock_ms=clock)
    stamps = [store.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms for _ in range(3)]
    store.close()
    again = open_small(tmp_path, clock_ms=lambda: 1)
    stamps.append(again.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms)
    again.close()
    assert stamps == [2000, 2000, 3000, 3000]


def test_prepared_and_rolled_back_records_get_no_queue_entry(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    prepared = store.append_run(run_of([("T", 0, b"half")], sys_flag=SYS_TRANSACTION_PREPARED))
    committed = store.append_run(run_of([("T", 0, b"whole")], sys_flag=SYS_TRANSACTION_COMMIT))
    store.put(Record("T", 0, b"half again", sys_flag=SYS_TRANSACTION_PREPARED))
    settle(store)
    assert prepared.queue_offsets.tolist() == committed.queue_offsets.tolist() == [0]
    assert bodies_of(store) == [b"whole"]
    store.close()


def test_put_fills_a_single_record_and_keeps_the_rest(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    record = Record(
        "%RETRY%G", 0, b"again", encode_properties({"TAGS": "TagA"}), reconsume_times=2,
        born_timestamp_ms=7, born_host=("::1", 5), store_host=("10.0.0.1", 10911),
    )  # fmt: skip
    appended = store.put(record)
    settle(store)
    (stored,) = records_of(store, "%RETRY%G", 0)
    assert (stored.body, stored.reconsume_times, stored.born_host) == (b"again", 2, ("::1", 5))
    assert stored.store_timestamp_ms == appended.store_timestamp_ms
    assert store.tags_code_at("%RETRY%G", 0, 0) == tags_code("TagA")
    store.close()


def test_a_delayed_record_has_its_delivery_time_as_tags_code(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    appended = store.put(Record("SCHEDULE_TOPIC_XXXX", 2, b"later", encode_properties({"DELAY": "3", "TAGS": "A"})))
    settle(store)
    assert store.tags_code_at("SCHEDULE_TOPIC_XXXX", 2, 0) == appended.store_timestamp_ms + 10_000
    store.close()


def test_a_record_that_fits_no_file_is_refused_and_nothing_of_its_run_is_stored(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    with pytest.raises(MessageTooLarge, match="65528"):
        store.append_run(run_of([("T", 0, b"small"), ("T", 0, b"x" * 65_500)]))
    with pytest.raises(BadRecord):
        store.put(Record("T", 0, b"x", b"p" * 32_768))
    assert store.log_max == 0
    assert store.append_run(run_of([("T", 0, b"small")])).queue_offsets.tolist() == [0]
    store.close()


def test_a_full_disk_refuses_writes_and_keeps_serving_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path)
    sent = fill_queue(store, 100)
    settle(store)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MappedFile, "create", no_space)
    with pytest.raises(StoreFull, match="No space left") as refused:
        store.append_run(run_of([("T", 0, body) for body in bodies(600, 400)]))
    assert refused.value.code == Code.SERVICE_NOT_AVAILABLE
    assert bodies_of(store) == sent
    monkeypatch.undo()
    assert store.append_run(run_of([("T", 0, b"room again")])).queue_offsets.tolist() == [100]
    store.close()


def test_a_closed_store_refuses_everything_and_closes_twice(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"x")]))
    store.close()
    store.close()
    with pytest.raises(StoreClosed) as refused:
        store.append_run(run_of([("T", 0, b"y")]))
    assert refused.value.definite
    with pytest.raises(StoreClosed):
        store.read("T", 0, 0)


def test_a_topic_that_names_no_folder_is_refused(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    with pytest.raises(StoreError, match="cannot name a folder"):
        store.append_run(run_of([("../up", 0, b"x")]))
    assert store.log_max == 0
    store.close()


def test_a_failed_queue_is_told_by_the_next_append(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.inspect().reput._dispatchers = [lambda batch: (_ for _ in ()).throw(OSError(5, "Input/output error"))]
    store.append_run(run_of([("T", 0, b"x")]))
    with pytest.raises(StoreError, match="Input/output error"):
        store.append_run(run_of([("T", 0, b"y")]))
    store.close()
    assert (tmp_path / "abort").exists()


@pytest.mark.slow
def test_many_queues_take_few_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = open_small(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, hard))
    try:
        store.append_run(run_of([("T", queue_id, b"x") for queue_id in range(500)]))
        settle(store)
        assert all(bodies_of(store, "T", queue_id) == [b"x"] for queue_id in range(500))
        store.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    again = open_small(tmp_path)
    assert len(again.queues()) == 500
    again.close()


def test_the_next_file_is_made_ahead_and_not_left_behind(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=65_536, mapped_file_size_consume_queue=1000, flush_interval_commit_log_ms=1
    )
    store = open_small(tmp_path, config)
    fill_queue(store, 300)

    until(lambda: (tmp_path / "commitlog" / "00000000000000065536").exists())
    assert store.log_max < 65_536
    fill_queue(store, 300, first=300)
    settle(store)
    assert len(bodies_of(store)) == 600
    store.close()
    assert max(path.name for path in (tmp_path / "commitlog").iterdir()) <= f"{store.log_max:020d}"


def test_arrivals_are_told_once_the_message_can_be_read(tmp_path: Path) -> None:
    told: list[tuple[tuple[str, int], int]] = []

    def listen(keys: list[tuple[str, int]]) -> None:
        told.extend((key, store.max_offset(*key)) for key in keys)

    store: MessageStore = open_small(tmp_path, on_arrival=listen)
    store.append_run(run_of([("T", 0, b"a"), ("T", 1, b"b")]))
    settle(store)
    store.close()
    assert sorted(told) == [(("T", 0), 1), (("T", 1), 1)]


def test_without_sync_flush_a_record_can_be_read_as_soon_as_its_append_returns(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for number in range(3):
        store.append_run(run_of([("T", 0, b"%d" % number)]))
        assert (store.max_offset("T", 0), store.dispatched) == (number + 1, store.log_max)
    store.close()


def test_a_listener_that_fails_does_not_stop_the_queues(tmp_path: Path) -> None:
    store = open_small(tmp_path, on_arrival=lambda keys: 1 / 0)
    store.append_run(run_of([("T", 0, b"a")]))
    store.append_run(run_of([("T", 0, b"b")]))
    settle(store)
    assert bodies_of(store) == [b"a", b"b"]
    store.close()


def test_each_of_hundreds_of_queues_gets_the_entries_of_its_records_however_few(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    keys = [(f"T{number % 50}", number // 50) for number in range(200)]
    sent: dict[tuple[str, int], list[bytes]] = {key: [] for key in keys}
    for turn, size in enumerate((200, 1, 7, 130, 200, 64, 3)):
        run = [(*keys[(turn * 31 + number * 7) % len(keys)], b"%d-%d" % (turn, number)) for number in range(size)]
        for topic, queue_id, body in run:
            sent[topic, queue_id].append(body)
        store.append_run(run_of(run))
    settle(store)
    assert {key: bodies_of(store, *key) for key in keys} == sent
    assert {key: store.max_offset(*key) for key in keys} == {key: len(bodies) for key, bodies in sent.items()}
    store.close()


def test_records_of_many_queues_that_get_no_entry_take_no_queue_offset(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    run = [(f"T{number % 20}", 0, b"%d" % number) for number in range(40)]
    store.append_run(run_of(run, sys_flag=SYS_TRANSACTION_PREPARED))
    appended = store.append_run(run_of(run))
    settle(store)
    assert appended.queue_offsets.tolist() == [0] * 20 + [1] * 20
    assert bodies_of(store, "T3") == [b"3", b"23"]
    store.close()


def test_an_event_loop_does_not_wait_for_a_file_that_a_disk_does_not_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still for a moment, once; later appends are refused at once, and go on when the disk does."""
    monkeypatch.setattr(next_file, "LOOP_WAITS_S", 0.05)
    store = open_small(tmp_path, soon=lambda action: None)
    answers, makers, real = threading.Event(), set[int](), MappedFile.create

    def create(path: Path, start: int, size: int) -> MappedFile:
        makers.add(threading.get_ident())
        assert answers.wait(30)
        return real(path, start, size)

    monkeypatch.setattr(MappedFile, "create", create)
    stored = sum(iter(lambda: appended(store), False))
    for _ in range(20):
        with pytest.raises(StoreSlow, match="send again"):
            store.append_run(run_of([("T", 0, b"x" * 20_000)]))
    assert store.log_max <= store.inspect().log.files.end
    answers.set()
    until(lambda: appended(store))
    assert threading.get_ident() not in makers
    settle(store)
    assert len(bodies_of(store)) == stored + 1


def test_an_event_loop_takes_the_file_that_the_flush_thread_made_after_a_try_of_its_own_had_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a replica whose log stands still for want of a file would refuse for ever."""
    files, real, full = FileQueue(tmp_path, 1 << 16), MappedFile.create, True

    def create(path: Path, start: int, size: int) -> MappedFile:
        if full:
            raise OSError(errno.ENOSPC, "no room")
        return real(path, start, size)

    monkeypatch.setattr(MappedFile, "create", create)
    ahead = next_file.NextFile(files, lambda: 0, in_loop=True)
    with pytest.raises(OSError, match="no room"):
        ahead.take(0)
    full = False
    ahead.prepare(0)
    taken = ahead.take(0)
    assert taken.start == 0
    taken.close()


def appended(store: MessageStore) -> bool:
    try:
        store.append_run(run_of([("T", 0, b"x" * 20_000)]))
    except StoreSlow:
        return False
    return True
