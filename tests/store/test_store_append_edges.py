"""Edges of appending: file ends to the byte, record versions, clocks that go back, dense offsets whatever comes."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_proto.codes import Code, MessageTooLarge
from dejamq_proto.records.record import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PAIR,
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Record,
    decode,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from store_making import SMALL, bodies_of, fill_queue, open_small, records_of, run_of, settle

FILE_SIZE = 65_536
OVERHEAD = 92  # of a record of topic T without properties


def run_ending_at(room: int, count: int) -> list[bytes]:
    """Bodies of ``count`` records that take ``room`` bytes of log in all."""
    body = room // count - OVERHEAD
    return [b"x" * body] * (count - 1) + [b"x" * (room - (count - 1) * (body + OVERHEAD) - OVERHEAD)]


@pytest.mark.parametrize("count", [1, 2, 64])
@pytest.mark.parametrize("before", [0, 1])
def test_records_that_leave_eight_bytes_stay_in_the_file(tmp_path: Path, count: int, before: int) -> None:
    store = open_small(tmp_path)
    for _ in range(before):
        store.append_run(run_of([("T", 0, b"first")]))
    exact = run_ending_at(FILE_SIZE - 8 - store.log_max, count)
    appended = store.append_run(run_of([("T", 0, body) for body in exact]))
    assert appended.end_log_offset == store.log_max == FILE_SIZE - 8
    assert len(appended.spans) == 1
    following = store.append_run(run_of([("T", 0, b"next")]))
    assert following.log_offsets.tolist() == [FILE_SIZE]
    settle(store)
    assert bodies_of(store)[before:] == [*exact, b"next"]
    raw = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert PAIR.unpack(raw[-8:]) == (8, MAGIC_BLANK)
    store.close()


@pytest.mark.parametrize("count", [1, 2, 64])
def test_of_records_that_leave_seven_bytes_the_last_goes_to_the_next_file(tmp_path: Path, count: int) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"first")]))
    sent = run_ending_at(FILE_SIZE - 7 - store.log_max, count)
    appended = store.append_run(run_of([("T", 0, body) for body in sent]))
    assert appended.log_offsets[-1] == FILE_SIZE
    blank_at = FILE_SIZE - 7 - len(sent[-1]) - OVERHEAD
    raw = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    assert PAIR.unpack_from(raw, blank_at) == (FILE_SIZE - blank_at, MAGIC_BLANK)
    settle(store)
    assert bodies_of(store)[1:] == sent
    store.close()


def test_a_single_record_put_at_a_file_end_moves_on_as_a_run_does(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.put(Record("T", 0, b"x" * (FILE_SIZE - 8 - OVERHEAD)))
    assert store.put(Record("T", 0, b"next")).log_offsets.tolist() == [FILE_SIZE]
    settle(store)
    assert [len(body) for body in bodies_of(store)] == [FILE_SIZE - 8 - OVERHEAD, 4]
    store.close()


@pytest.mark.parametrize("count", [1, 3])
def test_the_largest_record_of_a_file_fits_and_one_byte_more_is_refused(tmp_path: Path, count: int) -> None:
    store = open_small(tmp_path)
    largest = b"x" * (FILE_SIZE - 8 - OVERHEAD)
    with pytest.raises(MessageTooLarge, match=f"{FILE_SIZE - 7} bytes is over the {FILE_SIZE - 8}") as refused:
        store.append_run(run_of([("T", 0, b"ok")] * (count - 1) + [("T", 0, largest + b"x")]))
    assert refused.value.code == Code.MESSAGE_ILLEGAL
    assert store.log_max == 0
    assert store.append_run(run_of([("T", 0, largest)] * count)).queue_offsets.tolist() == list(range(count))
    store.close()


def test_a_record_over_the_message_size_and_its_allowance_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    store = open_small(tmp_path, StoreConfig(mapped_file_size_commit_log=1 << 20, max_message_size=1000))
    limit = 1000 + 65_536
    with pytest.raises(MessageTooLarge, match=f"over the {limit}"):
        store.append_run(run_of([("T", 0, b"x" * (limit - OVERHEAD + 1))]))
    with pytest.raises(MessageTooLarge, match=f"over the {limit}"):
        store.put(Record("T", 0, b"x" * (limit - OVERHEAD + 1)))
    assert store.log_max == 0
    assert store.append_run(run_of([("T", 0, b"x" * (limit - OVERHEAD))])).end_log_offset == limit
    store.close()


@pytest.mark.parametrize(("topic_size", "magic"), [(1, MAGIC_V1), (127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)])
def test_the_length_of_the_topic_decides_the_version_of_the_stored_record(
    tmp_path: Path, topic_size: int, magic: int
) -> None:
    topic = ("%RETRY%" + "g" * topic_size)[-topic_size:]
    store = open_small(tmp_path)
    appended = [store.append_run(run_of([(topic, 0, b"alone")])), store.put(Record(topic, 0, b"put"))]
    store.append_run(run_of([(topic, 0, b"in"), (topic, 0, b"a run")]))
    for each in appended:
        raw = store.record_at(int(each.log_offsets[0]))
        assert raw is not None
        assert decode(raw).magic == magic
    settle(store)
    store.close()
    again = open_small(tmp_path)
    assert bodies_of(again, topic) == [b"alone", b"put", b"in", b"a run"]
    again.close()


def test_store_times_never_go_back_though_the_clock_does(tmp_path: Path) -> None:
    clock = iter([500, 400, 450, 501, 3, 2, 1]).__next__
    store = open_small(tmp_path, clock_ms=clock)
    stamps = [store.append_run(run_of([("T", 0, b"x")] * count)).store_timestamp_ms for count in (1, 3, 1, 2)]
    stamps += [
        store.put(Record("T", 0, b"x")).store_timestamp_ms,
        store.append_run(run_of([("T", 0, b"x")])).store_timestamp_ms,
    ]
    settle(store)
    assert stamps == [500, 500, 500, 501, 501, 501]
    assert [record.store_timestamp_ms for record in records_of(store)] == [500] * 5 + [501] * 4
    store.close()


@pytest.mark.parametrize("sys_flag", [SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK])
@pytest.mark.parametrize("count", [1, 2])
def test_a_record_without_queue_entry_takes_no_queue_offset(tmp_path: Path, sys_flag: int, count: int) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"a")]))
    without = store.append_run(run_of([("T", 0, b"-")] * count, sys_flag=sys_flag))
    after = store.append_run(run_of([("T", 0, b"b")] * count, sys_flag=SYS_TRANSACTION_COMMIT))
    assert without.queue_offsets.tolist() == [0] * count
    assert after.queue_offsets.tolist() == list(range(1, 1 + count))
    settle(store)
    assert bodies_of(store) == [b"a"] + [b"b"] * count
    store.close()


def test_one_run_to_many_queues_has_its_records_in_order_in_each(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    messages = [(f"T{number % 10}", number % 30, b"%030d" % number) for number in range(600)]
    appended = store.append_run(run_of(messages))
    settle(store)
    assert len(appended.spans) == 2
    for topic, queue_id in {(topic, queue_id) for topic, queue_id, _ in messages}:
        expected = [body for t, q, body in messages if (t, q) == (topic, queue_id)]
        assert bodies_of(store, topic, queue_id) == expected
        mine = [
            offset
            for offset, message in zip(appended.queue_offsets, messages, strict=True)
            if message[:2] == (topic, queue_id)
        ]
        assert mine == list(range(len(expected)))
    store.close()


def test_a_run_that_names_a_queue_twice_keeps_log_order_in_it(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    run = run_of([("T", 0, b"%d" % number) for number in range(6)])
    twice = type(run)(run.run, [("T", 0), ("T", 0)], np.arange(6) % 2, run.tags_codes, run.born_host, run.store_host)
    assert store.append_run(twice).queue_offsets.tolist() == list(range(6))
    settle(store)
    assert bodies_of(store) == [b"%d" % number for number in range(6)]
    store.close()


MESSAGE = st.tuples(st.sampled_from(["T", "U"]), st.integers(0, 2), st.integers(0, 9000).map(lambda size: b"x" * size))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(runs=st.lists(st.lists(MESSAGE, min_size=1, max_size=12), min_size=1, max_size=6), puts=st.booleans())
def test_queue_offsets_have_no_gap_and_no_repeat_and_files_no_overlap(
    tmp_path_factory: pytest.TempPathFactory, runs: list[list[tuple[str, int, bytes]]], puts: bool
) -> None:
    directory = tmp_path_factory.mktemp("store")
    model: dict[tuple[str, int], list[bytes]] = {}
    spans: list[tuple[int, int]] = []
    store = open_small(directory, SMALL)
    for messages in runs:
        if puts and len(messages) == 1:
            appended = store.put(Record(*messages[0]))
        else:
            appended = store.append_run(run_of(messages))
        for message, queue_offset, at in zip(messages, appended.queue_offsets, appended.log_offsets, strict=True):
            queue = model.setdefault(message[:2], [])
            assert queue_offset == len(queue)
            queue.append(message[2])
            spans.append((int(at), int(at) + len(message[2]) + OVERHEAD))
    settle(store)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    assert all(begin // FILE_SIZE == (end + 7) // FILE_SIZE for begin, end in spans)
    for _ in range(2):
        assert {key: bodies_of(store, *key) for key in model} == model
        store.close()
        store = open_small(directory, SMALL)
    store.close()


def test_a_run_that_is_split_is_written_in_the_logs_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a kill in between would leave records behind a gap, which is damage, instead of an end."""
    put, places = CommitLog._put, list[int]()

    def noting(log: CommitLog, log_offset: int, data: memoryview) -> None:
        places.append(log_offset)
        put(log, log_offset, data)

    store = open_small(tmp_path)
    fill_queue(store, 330)
    monkeypatch.setattr(CommitLog, "_put", noting)
    store.append_run(run_of([("T", 0, b"x" * 100)] * 50))
    assert len(places) == 3
    assert places == sorted(places)
