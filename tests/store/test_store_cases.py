"""Behaviours of RocketMQ's store that surprise, one test each: whoever knows them there finds them here."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store import MessageStore
from dejamq_broker.store.files.errors import StoreClosed
from dejamq_proto.records.record import Record, decode, encode_properties
from store_making import SMALL, bodies_of, crashed_copy, fill_queue, log_files, open_small, records_of, run_of, settle


def test_async_flush_shows_messages_that_a_crash_then_loses_and_gives_their_offsets_again(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    fill_queue(store, 3)
    settle(store)
    before = crashed_copy(tmp_path / "store", tmp_path / "after-power-loss")
    store.append_run(run_of([("T", 0, b"read, then lost")]))
    assert bodies_of(store)[3] == b"read, then lost"
    again = open_small(before)
    appended = again.append_run(run_of([("T", 0, b"another one")]))
    assert appended.queue_offsets.tolist() == [3]
    assert bodies_of(again)[3] == b"another one"


def test_a_half_message_is_a_plain_record_of_a_system_topic_that_remembers_where_it_belongs(tmp_path: Path) -> None:
    """Only the sys flag's types *prepared* and *rollback* have no entry; RocketMQ stores halves without a type."""
    store = open_small(tmp_path)
    raw = encode_properties({"TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "3", "PGROUP": "G"})
    store.put(Record("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", raw))
    settle(store)
    (record,) = records_of(store, "RMQ_SYS_TRANS_HALF_TOPIC")
    assert record.properties == {"TRAN_MSG": "true", "REAL_TOPIC": "T", "REAL_QID": "3", "PGROUP": "G"}
    assert store.max_offset("T", 3) == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.append_run(run_of([("T", 0, b"x")])),
        lambda store: store.put(Record("T", 0, b"x")),
        lambda store: store.read("T", 0, 0),
        lambda store: store.record_at(0),
        lambda store: store.search_offset("T", 0, 0),
    ],
    ids=["append", "put", "read", "record at", "search"],
)
def test_after_its_end_a_store_does_nothing_more(tmp_path: Path, use: Callable[[MessageStore], object]) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 1)
    store.close()
    with pytest.raises(StoreClosed):
        use(store)


def test_offsets_of_a_log_that_begins_late_are_found_in_its_files(tmp_path: Path) -> None:
    """Files by log offset when the first one does not begin at 0: first, last and both neighbours of each file."""
    store = open_small(tmp_path)
    fill_queue(store, 1200)
    store.close()
    for path in log_files(tmp_path)[:2]:
        path.unlink()
    again = open_small(tmp_path)
    settle(again)
    records = records_of(again)
    offsets = np.array([record.log_offset for record in records])
    assert again.log_min == 2 * SMALL.mapped_file_size_commit_log
    assert again.record_at(int(offsets[0]) - 1) is None
    for log_offset in offsets.tolist():
        raw = again.record_at(log_offset)
        assert raw is not None
        assert decode(raw).log_offset == log_offset
    assert {int(offset) // 65_536 for offset in offsets} == {2, 3}
