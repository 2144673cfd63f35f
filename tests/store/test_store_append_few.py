"""A few records in plain numbers become what numpy makes of them, byte for byte."""

import random
from pathlib import Path

import pytest
from dejamq_broker.store import AppendFew, AppendRun, MessageStore, StoreClosed
from dejamq_proto.records.record import SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_PREPARED
from dejamq_proto.records.small_runs import FEW, pieces
from store_making import Message, bodies_of, open_small, run_of, settle


def few_of(run: AppendRun) -> AppendFew:
    data = run.run.data.tobytes()
    found = pieces(data, run.run.sizes.tolist())
    assert found is not None
    return AppendFew(
        data, found, run.keys, run.key_index.tolist(), run.tags_codes.tolist(), run.born_host, run.store_host
    )


def log_of(store: MessageStore) -> bytes:
    return store.copy.from_disk(0, store.log_max)


def test_runs_of_a_few_are_stored_as_other_runs_are(tmp_path: Path, chance: random.Random) -> None:
    stores = plain, numpy = open_small(tmp_path / "few"), open_small(tmp_path / "run")
    for store in stores:
        store.append_run(run_of([("T", 0, b"the file is there now")]))
    for _ in range(400 // FEW):  # even the largest do not fill the file
        flag = chance.choice([0, 0, SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_COMMIT])
        messages: list[Message] = [
            (chance.choice("TU"), chance.randrange(3), chance.randbytes(50))
            for _ in range(chance.randrange(1, FEW + 1))
        ]
        run = run_of(messages, tag=chance.choice([None, "red"]), sys_flag=flag)
        few, other = plain.append_few(few_of(run)), numpy.append_run(run)
        assert few is not None
        assert few.queue_offsets == other.queue_offsets.tolist()
        assert [(0, few.log_offset)] == other.spans
        assert (few.end_log_offset, few.store_timestamp_ms) == (other.end_log_offset, other.store_timestamp_ms)
    assert log_of(plain) == log_of(numpy)
    for store in stores:
        settle(store)
    assert sorted(plain.queues()) == sorted(numpy.queues())
    for topic, queue_id in plain.queues():
        count = numpy.max_offset(topic, queue_id)
        assert bodies_of(plain, topic, queue_id) == bodies_of(numpy, topic, queue_id)
        tags = [[store.tags_code_at(topic, queue_id, at) for at in range(count)] for store in stores]
        assert tags[0] == tags[1]


def test_a_few_that_do_not_fit_into_the_file_are_left_to_a_run(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    run = run_of([("T", 0, b"x" * 30_000), ("T", 0, b"y" * 30_000)])
    assert store.append_few(few_of(run)) is None  # there is no file yet
    store.append_run(run)
    assert store.append_few(few_of(run)) is None
    end = store.log_max
    assert store.append_run(run).queue_offsets.tolist() == [2, 3]
    assert store.log_max > end


def test_a_closed_store_takes_no_few(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T", 0, b"x")]))
    store.close()
    with pytest.raises(StoreClosed):
        store.append_few(few_of(run_of([("T", 0, b"x")])))
