"""Commit logs: those that a real RocketMQ wrote, and damaged copies of them."""

import json
import shutil
from pathlib import Path

import pytest
from dejamq_analytics.sources.commit_log import scan
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.sources.stores import read_records
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_proto.records.record import Record, encode_properties
from journals import History
from pyspark.sql import SparkSession
from stories import send_twice
from told import Auditor

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def store_of(records: list[Record], directory: Path) -> Path:
    """A store that has these records, closed."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 20)
    store = MessageStore.open(directory, config, clock_ms=lambda: 1_790_000_000_000)
    for record in records:
        store.put(record)
    store.close()
    return directory


@pytest.mark.parametrize("store", ["clean", "crash"])
def test_every_record_of_a_real_store_is_read(in_either: SparkSession, store: str) -> None:
    manifest = json.loads((GOLDEN / store / "manifest.json").read_text(encoding="utf-8"))
    expected = {
        (queue["topic"], queue["queue_id"], record["queue_offset"], record["log_offset"], record["store_size"],
         record["reconsume_times"], record["properties"].get("UNIQ_KEY"), record.get("tags") or None)
        for queue in manifest["queues"]
        for record in queue["records"]
    }  # fmt: skip
    rows = read_records(in_either, [str(GOLDEN / store / "store")]).collect()
    found = {
        (row.topic, row.queue_id, row.queue_offset, row.log_offset, row.store_size, row.reconsume_times,
         row.unique_key, row.tags)
        for row in rows
    }  # fmt: skip
    assert expected <= found


def test_reading_stops_at_damage_and_keeps_what_precedes_it(tmp_path: Path) -> None:
    log = tmp_path / "00000000000000000000"
    shutil.copy(GOLDEN / "clean" / "store" / "commitlog" / log.name, log)
    whole = list(scan(log))
    data = bytearray(log.read_bytes())
    data[whole[10][0].log_offset + 95] ^= 0xFF
    log.write_bytes(data)
    assert [record.log_offset for record, _ in scan(log)] == [record.log_offset for record, _ in whole[:10]]


@pytest.mark.parametrize("tail", [b"", b"\x7f", b"\xff\xff\xff\xff" * 40, b"\x00\x00\x01\x00\xda\xa3\x20\xa7"])
def test_no_tail_makes_reading_fail(tmp_path: Path, tail: bytes) -> None:
    log = tmp_path / "00000000000000000000"
    whole = (GOLDEN / "clean" / "store" / "commitlog" / log.name).read_bytes()
    first = int.from_bytes(whole[:4])
    log.write_bytes(whole[:first] + tail)
    assert len(list(scan(log))) == 1


def test_a_directory_without_a_commit_log_is_refused(in_either: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no store in"):
        read_records(in_either, [str(tmp_path)])


def test_copies_that_only_a_commit_log_still_has_are_found_and_undetermined(tmp_path: Path, audited: Auditor) -> None:
    history = History(tmp_path / "journal", "elsewhere")
    history.directory.mkdir()
    send_twice(history, deliver=False, outcome="ok")
    history.end()
    message = encode_properties({"UNIQ_KEY": "7F00000100002A9F0000000000000001"})
    batch = encode_properties({"UNIQ_KEY": "of-a-batch-as-rocketmq-writes-it"})
    copies = [Record("orders", 0, b"x", message), Record("orders", 1, b"x", message)]
    store = store_of([*copies, Record("orders", 0, b"y", batch), Record("orders", 0, b"z", batch)], tmp_path / "store")
    result = audited([store], journals=[str(history.directory)])
    rows = [row for row in result.findings.collect() if not row.message_id.startswith("elsewhere")]
    assert {row.message_id for row in rows} == {"7F00000100002A9F0000000000000001"}
    assert all(row.cause is None and row.kind == "stored twice" for row in rows)
    assert all("only its commit log" in row.missing for row in rows)
