"""Search by time, between records, at them, among ties, and beyond both ends. Source: RocketMQ's boundary types."""

import json
import shutil
from bisect import bisect_left, bisect_right
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store.queues.consume_queue import ConsumeQueue
from dejamq_broker.store.queues.entry_files import ENTRY, Entries
from dejamq_proto.records.record import Record
from store_making import GOLDEN, SMALL, START_MS, open_small, run_of, settle


def lower(times_ms: list[int], wanted_ms: int) -> int:
    """The first offset stored at or after the time; the end when none is."""
    return bisect_left(times_ms, wanted_ms)


def upper(times_ms: list[int], wanted_ms: int) -> int:
    """The last offset stored at or before the time; 0 when none is."""
    return max(0, bisect_right(times_ms, wanted_ms) - 1)


@pytest.mark.parametrize("which", ["clean", "crash"])
def test_at_around_and_beyond_every_store_time_of_a_rocketmq_store(which: str, tmp_path: Path) -> None:
    manifest = json.loads((GOLDEN / which / "manifest.json").read_text())
    store = open_small(Path(shutil.copytree(GOLDEN / which / "store", tmp_path / "store")))
    searched = 0
    for queue in manifest["queues"]:
        key = queue["topic"], queue["queue_id"]
        times_ms = [record["store_timestamp"] for record in queue["records"]]
        wanted = {time_ms + shift for time_ms in times_ms for shift in (-1, 0, 1)} | {0, 1 << 60}
        for time_ms in sorted(wanted):
            assert store.search_offset(*key, time_ms) == lower(times_ms, time_ms)
            assert store.search_offset(*key, time_ms, upper=True) == upper(times_ms, time_ms)
            searched += 1
    assert searched > 500
    store.close()


@pytest.mark.parametrize(
    ("wanted_ms", "first", "last"),
    [
        (START_MS - 1, 0, 0),
        (START_MS, 0, 2),
        (START_MS + 1, 3, 2),
        (START_MS + 10, 3, 132),
        (START_MS + 11, 133, 132),
        (START_MS + 20, 133, 133),
        (START_MS + 21, 134, 133),
    ],
)
def test_ties_give_their_first_or_their_last(tmp_path: Path, wanted_ms: int, first: int, last: int) -> None:
    """130 messages of one millisecond lie in three queue files."""
    now = {"ms": START_MS}
    store = open_small(tmp_path, SMALL, clock_ms=lambda: now["ms"])
    for now["ms"], count in ((START_MS, 3), (START_MS + 10, 130), (START_MS + 20, 1)):
        store.append_run(run_of([("T", 0, b"x")] * count))
    settle(store)
    assert store.search_offset("T", 0, wanted_ms) == first
    assert store.search_offset("T", 0, wanted_ms, upper=True) == last
    store.close()


def test_what_expired_is_not_found(tmp_path: Path) -> None:
    now = {"ms": START_MS - 1}
    store = open_small(tmp_path, clock_ms=lambda: now["ms"])
    for _ in range(400):
        now["ms"] += 1
        store.append_run(run_of([("T", 0, b"x" * 300)]))
    settle(store)
    store.close()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    again = open_small(tmp_path)
    low = again.min_offset("T", 0)
    assert 100 < low < 400
    for wanted_ms in (0, START_MS, START_MS + low):
        assert again.search_offset("T", 0, wanted_ms) == low
        assert again.search_offset("T", 0, wanted_ms, upper=True) == low
    assert again.search_offset("T", 0, START_MS + low + 1) == low + 1
    assert again.search_offset("T", 0, START_MS + 400) == 400
    again.close()


def test_a_queue_that_is_empty_or_unknown_has_its_end_at_any_time(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    assert store.search_offset("T", 7, START_MS) == 0
    assert store.search_offset("T", 7, START_MS, upper=True) == 0
    store.close()


def test_a_gap_of_hundreds_of_thousands_is_not_searched_entry_by_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path / "store")
    places = store.append_run(run_of([("T", 0, b"first"), ("T", 0, b"last")])).log_offsets
    queue = ConsumeQueue(tmp_path / "queue", 20 * 1000, lambda: 4_096)
    sizes = np.array([len(store.record_at(place) or b"") for place in places.tolist()])
    entries = np.zeros(2, ENTRY)
    entries["log_offset"], entries["size"] = places, sizes
    queue.append(np.array([0, 300_000]), entries, places + sizes)
    reads: list[int] = []
    read = ConsumeQueue.entries

    def counted(queue: ConsumeQueue, queue_offset: int, count: int) -> Entries:
        reads.append(queue_offset)
        return read(queue, queue_offset, count)

    monkeypatch.setattr(ConsumeQueue, "entries", counted)
    assert store.inspect().reader.search(queue, START_MS + 10_000, upper=False) == 300_001
    assert len(reads) < 200


def test_messages_of_ipv6_producers_are_searched_by_their_time_too(tmp_path: Path) -> None:
    """Their header is longer, so the time stands elsewhere in it."""
    clock = iter(range(START_MS, START_MS + 10_000, 10))
    store = open_small(tmp_path, clock_ms=lambda: next(clock))
    times_ms = [
        store.put(Record("T", 0, b"x", born_host=("::1" if number % 3 else "127.0.0.1", 5))).store_timestamp_ms
        for number in range(40)
    ]
    settle(store)
    for wanted_ms in range(times_ms[0] - 1, times_ms[-1] + 2):
        assert store.search_offset("T", 0, wanted_ms) == lower(times_ms, wanted_ms)
        assert store.search_offset("T", 0, wanted_ms, upper=True) == upper(times_ms, wanted_ms)
