"""Harm done to queues, checkpoint and mark, in stores of ours and of a real RocketMQ.

All of it is derived from the log, so everything is served all the same.
"""

import hashlib
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store import MessageStore
from dejamq_broker.store.log.batch import QueueKey
from dejamq_proto.records.record import SYS_COMPRESSED, Record
from harm import (
    END,
    QUEUE_HARMS,
    Harm,
    all_of,
    drop,
    expected,
    lose_mark,
    lose_queues,
    served,
    write,
)
from store_making import GOLDEN, START_MS, bodies_of, open_small, overwrite, records_of, run_of, settle, ticking

pytestmark = pytest.mark.slow

CASES = [
    *((name, clean, False) for name in QUEUE_HARMS for clean in (True, False)),
    *((name, not name.startswith("checkpoint"), True) for name in QUEUE_HARMS if not name.startswith("mark")),
]
"""What is done, whether after a clean stop, and whether the mark goes too, as in a RocketMQ's store."""


@pytest.mark.parametrize(("name", "clean", "unmarked"), CASES)
def test_harm_to_queues_and_marks(name: str, clean: bool, unmarked: bool, whole: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(whole, tmp_path / "store"))
    QUEUE_HARMS[name](directory)
    if unmarked:
        lose_mark(directory)
    if not clean:
        (directory / "abort").write_text("1")
    store = open_small(directory, clock_ms=ticking(START_MS + 3_600_000))
    assert served(store) == expected(set())
    assert (store.log_max, store.recovery.damages, store.recovery.cuts) == (END, (), ())
    assert [record.queue_offset for record in records_of(store, "T", 1)] == list(range(440))
    appended = store.append_run(run_of([("T", 0, b"next"), ("U", 3, b"next")]))
    longer = 10_000 if "longer queues" in name else 440
    assert appended.queue_offsets.tolist() == [longer, 20]
    settle(store)
    store.close()
    again = open_small(directory)
    assert not again.recovery.queues_rebuilt
    assert bodies_of(again, "T", 0)[-1] == b"next"
    again.close()


# The same harms to stores that a RocketMQ wrote, stopped and killed.

Stored = dict[QueueKey, list[tuple[int, int, str]]]


def stored(store: MessageStore) -> Stored:
    return {key: [_seen(record) for record in records_of(store, *key)] for key in sorted(store.queues())}


def _seen(record: Record) -> tuple[int, int, str]:
    body = zlib.decompress(record.body) if record.sys_flag & SYS_COMPRESSED else record.body
    return record.queue_offset, record.log_offset, hashlib.sha256(body).hexdigest()


def of_manifest(manifest: dict[str, Any]) -> Stored:
    return {
        (queue["topic"], queue["queue_id"]): [
            (record["queue_offset"], record["log_offset"], record["body_sha256"]) for record in queue["records"]
        ]
        for queue in manifest["queues"]
    }


def golden_entry(directory: Path) -> None:
    overwrite(directory / "consumequeue" / "GoldenTopic" / "2" / f"{1000:020d}", 300, b"\0" * 10)


def add_abort(directory: Path) -> None:
    (directory / "abort").write_text("1")


def drop_abort(directory: Path) -> None:
    (directory / "abort").unlink(missing_ok=True)


GOLDEN_HARMS: dict[str, Harm] = {
    "as it is": lambda directory: None,
    "abort there": add_abort,
    "abort gone": drop_abort,
    **{name: harm for name, harm in QUEUE_HARMS.items() if name.startswith("checkpoint")},
    "all queues gone": lose_queues,
    "one topic gone": drop("consumequeue", "Order"),
    "one queue gone": drop("consumequeue", "GoldenTopic", "1"),
    "one file gone": drop("consumequeue", "GoldenTopic", "1", f"{0:020d}"),
    "one last file gone": drop("consumequeue", "GoldenTopic", "1", f"{1000:020d}"),
    "an entry torn": golden_entry,
    "checkpoint and queues gone": all_of(drop("checkpoint"), lose_queues),
    "index gone": drop("index"),
    "a mark of another life": write("dispatched.json", b'{"log_offset":70000,"queues":{"GoldenTopic":{"0":3}}}'),
}


@pytest.mark.parametrize("name", GOLDEN_HARMS)
@pytest.mark.parametrize("which", ["clean", "crash"])
def test_harm_to_a_store_of_rocketmq(which: str, name: str, tmp_path: Path) -> None:
    manifest = json.loads((GOLDEN / which / "manifest.json").read_text())
    directory = Path(shutil.copytree(GOLDEN / which / "store", tmp_path / "store"))
    GOLDEN_HARMS[name](directory)
    now_ms = 1_800_000_000_000
    store = open_small(directory, clock_ms=ticking(now_ms))
    assert not store.recovery.cuts
    assert not store.recovery.damages
    found = stored(store)
    assert {key: found[key] for key in of_manifest(manifest)} == of_manifest(manifest)
    for queue in manifest["queues"]:
        for search in queue.get("search_offset", []):
            assert store.search_offset(queue["topic"], queue["queue_id"], search["timestamp"]) == search["offset"]
    ends = [len(found["GoldenTopic", queue_id]) for queue_id in range(4)]
    appended = store.append_run(run_of([("GoldenTopic", queue_id, b"ours") for queue_id in range(4)]))
    assert appended.queue_offsets.tolist() == ends
    assert appended.store_timestamp_ms >= now_ms
    settle(store)
    after = stored(store)
    store.close()
    again = open_small(directory)
    assert not again.recovery.queues_rebuilt
    assert stored(again) == after
    again.close()
