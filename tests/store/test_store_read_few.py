"""A few messages at the end of a queue, read in plain numbers, are what numpy reads of them."""

import random
from pathlib import Path

import pytest
from dejamq_broker.store import AppendRun, MessageStore, StoreConfig
from dejamq_broker.store.queues import consume_queue
from dejamq_broker.store.queues.entry_files import FILLER_SIZE
from dejamq_proto.records.record import tags_code
from store_making import SMALL, open_small, run_of, settle

TAGS = (None, frozenset({tags_code("red")}), frozenset({tags_code("red"), 0}))


def made_of(chance: random.Random) -> AppendRun:
    messages = [
        ("T", chance.randrange(3), chance.randbytes(chance.randrange(1, 400))) for _ in range(chance.randrange(1, 9))
    ]
    return run_of(messages, tag=chance.choice([None, "red"]))


def assert_alike(store: MessageStore, chance: random.Random, patch: pytest.MonkeyPatch) -> None:
    queue_id = chance.randrange(3)
    end = store.max_offset("T", queue_id)
    at = max(0, end - chance.randrange(12))
    most = {"max_messages": chance.randrange(1, 12), "max_bytes": chance.choice([100, 2000, 1 << 20])}
    tags = chance.choice(TAGS)
    found = store.read("T", queue_id, at, tags=tags, **most)
    with patch.context() as plain:
        plain.setattr(consume_queue, "FEW", -1)
        assert store.read("T", queue_id, at, tags=tags, **most) == found


def test_whatever_is_asked_for_both_ways_answer_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chance: random.Random
) -> None:
    store = open_small(tmp_path, StoreConfig(
        mapped_file_size_commit_log=SMALL.mapped_file_size_commit_log, mapped_file_size_consume_queue=1000,
        max_transfer_count_on_message_in_memory=6, max_transfer_bytes_on_message_in_memory=1500,
    ))  # fmt: skip
    for _ in range(60):
        store.append_run(made_of(chance))
        settle(store)
        for _ in range(10):
            assert_alike(store, chance, monkeypatch)


def test_fillers_of_a_queue_that_begins_late_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"x")] * 3))
    settle(store)
    queue = store.inspect().queues.get(("T", 0))
    assert queue is not None
    queue._tail.entries["size"][1] = FILLER_SIZE
    found = store.read("T", 0, 0)
    assert (len(found.sizes), found.next_offset) == (2, 3)


def test_a_queue_entry_beyond_the_log_is_told_and_not_answered_in_part(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"x")] * 3))
    settle(store)
    queue = store.inspect().queues.get(("T", 0))
    assert queue is not None
    queue._tail.entries["log_offset"][2] = store.log_max + 1
    with pytest.raises(Exception, match="points at bytes that the log does not have"):
        store.read("T", 0, 0)
