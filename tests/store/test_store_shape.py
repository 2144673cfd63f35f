"""The other way: what we write is what RocketMQ writes, byte for byte, and lies where RocketMQ looks for it."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store import MessageStore
from dejamq_broker.store.files.checkpoint import CHECKPOINT_SIZE, Checkpoint
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.log.scan import FoundRecords, walk
from dejamq_broker.store.offline.at_rest import commit_log
from dejamq_proto.records.record import Record, decode, encode, encode_properties
from store_making import GOLDEN, SMALL, log_files, open_small, settle

OURS = {"dispatched.json", "indexed.json"}


@pytest.fixture(params=["clean", "crash"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def records_in_log(directory: Path) -> Iterator[bytes]:
    """Every record of a log as it stands there, those without a queue entry too."""
    files = commit_log(StorePaths(directory))
    for extent in files.extents():
        for piece in walk(files.read, extent, extent.start):
            if isinstance(piece, FoundRecords):
                at = 0
                for size in piece.sizes:
                    yield bytes(piece.data[at : at + size])
                    at += size


def used(path: Path) -> bytes:
    return path.read_bytes().rstrip(b"\0")


def manifest_of(kind: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / kind / "manifest.json").read_text())
    return content


def test_every_record_of_a_rocketmq_log_is_encoded_to_its_own_bytes(kind: str) -> None:
    raws = list(records_in_log(GOLDEN / kind / "store"))
    records = [decode(raw) for raw in raws]
    assert [encode(record) for record in records] == raws
    assert len({record.magic for record in records}) == 2
    assert len(raws) > 400


def test_the_same_messages_at_the_same_times_give_rocketmqs_own_files(kind: str, tmp_path: Path) -> None:
    """Log with its blanks, queues and index: appended one by one as their producers sent them."""
    golden = GOLDEN / kind / "store"
    records = [decode(raw) for raw in records_in_log(golden)]
    now = [records[0].store_timestamp_ms]
    store = open_small(tmp_path, SMALL, clock_ms=lambda: now[0])
    for record in records:
        now[0] = record.store_timestamp_ms
        store.put(record)
    settle(store)
    store.close()
    for path in log_files(tmp_path):
        assert used(path) == used(golden / "commitlog" / path.name), path.name
    for path in sorted((golden / "consumequeue").rglob("0*")):
        if path.is_file():
            assert used(tmp_path / path.relative_to(golden)) == used(path), path
    ours, theirs = (sorted((directory / "index").iterdir()) for directory in (tmp_path, golden))
    assert [path.read_bytes() for path in ours] == [path.read_bytes() for path in theirs]


def test_a_closed_store_has_the_files_of_a_closed_rocketmq(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    for number in range(300):
        store.put(Record("T", 0, b"." * 100, encode_properties({"KEYS": f"k{number}"})))
    store.close()
    golden = GOLDEN / "clean" / "store"
    made_elsewhere = {"config", "compaction", "abort.bak"}  # by the broker; by what we do not have; when it was made
    assert {path.name for path in tmp_path.iterdir()} - OURS == {
        path.name for path in golden.iterdir()
    } - made_elsewhere
    for folder in ("commitlog", "consumequeue/T/0", "index"):
        pattern = {len(path.name) for path in (tmp_path / folder).iterdir()}
        assert pattern == ({17} if folder == "index" else {20})
    assert (tmp_path / "lock").read_bytes() == (golden / "lock").read_bytes()


def test_an_open_store_has_the_abort_of_an_open_rocketmq(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    golden = (GOLDEN / "crash" / "store" / "abort").read_bytes()
    ours = (tmp_path / "abort").read_bytes()
    assert golden.isdigit()
    assert ours == str(os.getpid()).encode()
    store.close()
    assert not (tmp_path / "abort").exists()


def test_the_checkpoint_has_rocketmqs_size_and_fields(tmp_path: Path) -> None:
    now = [5_000]
    store = open_small(tmp_path, clock_ms=lambda: now[0])
    store.put(Record("T", 0, b"x"))
    now[0] = 7_000
    store.put(Record("T", 0, b"y"))
    store.close()
    raw = (tmp_path / "checkpoint").read_bytes()
    assert len(raw) == CHECKPOINT_SIZE == (GOLDEN / "clean" / "store" / "checkpoint").stat().st_size
    checkpoint = Checkpoint.load(tmp_path / "checkpoint")
    assert checkpoint.log_timestamp_ms == checkpoint.queue_timestamp_ms == 7_000
    assert not any(raw[40:])


def test_every_message_is_found_by_its_offset_id(kind: str, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(GOLDEN / kind / "store", tmp_path / "store"))
    store: MessageStore = open_small(directory)
    for queue in manifest_of(kind)["queues"]:
        for expected in queue["records"]:
            raw = store.record_at(expected["log_offset"])
            assert raw is not None
            record = decode(raw)
            assert record.offset_message_id == expected["offset_msg_id"]
            assert len(raw) == expected["store_size"]
    assert store.record_at(store.log_max) is None
    assert store.record_at(store.log_min + 1) is None
    store.close()
