"""Stores that a real RocketMQ wrote: read, checked, rebuilt and continued byte for byte."""

import hashlib
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dejamq_broker.store import MessageStore
from dejamq_broker.store.queues.entry_files import ENTRY
from dejamq_proto.records.record import SYS_COMPRESSED, Record, decode, encode
from store_making import GOLDEN, bodies_of, open_small, records_of, run_of, settle

Manifest = dict[str, Any]
ENTRY_BYTES = ENTRY.itemsize


@pytest.fixture(params=["clean", "crash"])
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Manifest]:
    """A copy of a RocketMQ store, and what that RocketMQ said is in it."""
    source = GOLDEN / request.param
    manifest = json.loads((source / "manifest.json").read_text())
    return Path(shutil.copytree(source / "store", tmp_path / "store")), manifest


def check_record(record: Record, expected: Manifest) -> None:
    body = zlib.decompress(record.body) if record.sys_flag & SYS_COMPRESSED else record.body
    found = {
        "queue_offset": record.queue_offset,
        "log_offset": record.log_offset,
        "store_size": len(encode(record)),
        "body_crc": record.body_crc,
        "flag": record.flag,
        "born_timestamp": record.born_timestamp_ms,
        "store_timestamp": record.store_timestamp_ms,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "offset_msg_id": record.offset_message_id,
        "body_sha256": hashlib.sha256(body).hexdigest(),
    }
    assert found == {name: expected[name] for name in found}
    assert record.properties.items() <= expected["properties"].items()
    assert record.properties.get("TAGS") == expected.get("tags")
    assert record.properties.get("KEYS") == expected.get("keys")


def check_all(store: MessageStore, manifest: Manifest) -> None:
    assert set(store.queues()) >= {(queue["topic"], queue["queue_id"]) for queue in manifest["queues"]}
    for queue in manifest["queues"]:
        topic, queue_id = queue["topic"], queue["queue_id"]
        assert store.min_offset(topic, queue_id) == queue["min_offset"]
        assert store.max_offset(topic, queue_id) == queue["max_offset"]
        records = records_of(store, topic, queue_id)
        assert len(records) == len(queue["records"])
        for record, expected in zip(records, queue["records"], strict=True):
            check_record(record, expected)


def queue_bytes(directory: Path) -> dict[str, bytes]:
    """All queue files, the zeros at their ends left away."""
    folder = directory / "consumequeue"
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {}
    for name, data in files.items():
        entries = np.frombuffer(data, ENTRY)
        found[name] = data[: int(np.count_nonzero(entries["size"])) * ENTRY_BYTES]
    return {name: data for name, data in found.items() if data}


def test_every_queue_of_a_rocketmq_store_is_served_as_its_manifest_says(golden: tuple[Path, Manifest]) -> None:
    directory, manifest = golden
    store = open_small(directory)
    assert not store.recovery.cuts
    assert not store.recovery.damages
    check_all(store, manifest)
    store.close()


def test_time_search_answers_as_rocketmq_did(golden: tuple[Path, Manifest]) -> None:
    directory, manifest = golden
    store = open_small(directory)
    searches = [
        (store.search_offset(queue["topic"], queue["queue_id"], search["timestamp"]), search["offset"])
        for queue in manifest["queues"]
        for search in queue.get("search_offset", [])
    ]
    assert len(searches) == 8
    assert all(found == expected for found, expected in searches)
    store.close()


def test_a_rocketmq_store_takes_appends_and_reopens(golden: tuple[Path, Manifest]) -> None:
    directory, manifest = golden
    store = open_small(directory)
    ends = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in manifest["queues"]}
    appended = store.append_run(run_of([("GoldenTopic", queue_id, b"ours" * 300) for queue_id in range(4)] * 40))
    assert appended.queue_offsets[:4].tolist() == [ends["GoldenTopic", queue_id] for queue_id in range(4)]
    settle(store)
    store.close()
    again = open_small(directory)
    assert again.clean_start
    assert not again.recovery.queues_rebuilt
    for queue_id in range(4):
        found = bodies_of(again, "GoldenTopic", queue_id)
        assert len(found) == ends["GoldenTopic", queue_id] + 40
        assert found[-40:] == [b"ours" * 300] * 40
    again.close()


def test_queues_rebuilt_from_the_log_are_rocketmqs_own_bytes(golden: tuple[Path, Manifest]) -> None:
    directory, manifest = golden
    original = queue_bytes(directory)
    shutil.rmtree(directory / "consumequeue")
    store = open_small(directory)
    check_all(store, manifest)
    store.close()
    assert queue_bytes(directory) == original


def test_records_read_and_written_again_are_the_same_bytes(golden: tuple[Path, Manifest]) -> None:
    directory, manifest = golden
    store = open_small(directory)
    for queue in manifest["queues"]:
        for record in queue["records"]:
            raw = store.record_at(record["log_offset"])
            assert raw is not None
            assert encode(decode(raw)) == raw
    store.close()


def test_opening_and_closing_leaves_rocketmqs_log_bytes_alone(golden: tuple[Path, Manifest]) -> None:
    directory, _ = golden
    before = {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}
    store = open_small(directory)
    store.close()
    after = {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}
    assert after.items() <= before.items()
    assert all(not any(before[name]) for name in before.keys() - after.keys())
