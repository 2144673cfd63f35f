"""What the tests of the index have in common: keyed messages, and an index as RocketMQ writes it, entry by entry."""

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from dejamq_broker.store import AppendRun, KeyQuery, MessageStore
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexShape
from dejamq_broker.store.index.index import Index
from dejamq_broker.store.index.keys import Keys
from dejamq_broker.store.index.trust import KnownLog
from dejamq_broker.store.log.scan import FoundRecords
from dejamq_proto.records.record import Outgoing, decode, encode_properties, tags_code
from dejamq_proto.records.run import parse
from store_making import HOST, SMALL, START_MS, ticking

SHAPE = IndexShape(SMALL.max_hash_slot_num, SMALL.max_index_num)
Keyed = tuple[str, str, str]
"""Topic, KEYS, UNIQ_KEY; an empty one is left out."""


def keys(hashes: Iterable[int], *, log_offset: int = 1000, time_ms: int = START_MS, step_ms: int = 1) -> Keys:
    """One key a record, 100 bytes and ``step_ms`` apart."""
    values = np.array(list(hashes), np.int64)
    numbers = np.arange(len(values))
    return Keys(values, log_offset + 100 * numbers, time_ms + step_ms * numbers)


def records(messages: Iterable[Keyed], *, sys_flag: int = 0, body: bytes = b"body") -> list[bytes]:
    return [
        Outgoing.to(topic, sys_flag=sys_flag).encode(
            0, 5, body, encode_properties({"UNIQ_KEY": unique, "TAGS": "t", "KEYS": words})
        )
        for topic, words, unique in messages
    ]


def found(raw: list[bytes], log_offset: int = 0) -> FoundRecords:
    """Records as they are read back from the log."""
    data, sizes = b"".join(raw), [len(record) for record in raw]
    return FoundRecords(log_offset, data, sizes, parse(data, np.array(sizes)))


def keyed_run(messages: list[Keyed], *, sys_flag: int = 0, body: bytes = b"body") -> AppendRun:
    raw = records(messages, sys_flag=sys_flag, body=body)
    topics = sorted({(topic, 0) for topic, _, _ in messages})
    return AppendRun(
        run=parse(b"".join(raw), np.array([len(record) for record in raw])), keys=topics,
        key_index=np.array([topics.index((topic, 0)) for topic, _, _ in messages], np.int64),
        tags_codes=np.full(len(messages), tags_code("t"), np.int64), born_host=HOST, store_host=HOST,
    )  # fmt: skip


def fill_keyed(store: MessageStore, count: int, *, first: int = 0, body: bytes = b"." * 200) -> list[int]:
    """Messages of topic T with the keys ``k<number>`` and ``all``, and the unique key ``u<number>``. Their offsets."""
    offsets: list[int] = []
    for start in range(first, first + count, 20):
        numbers = range(start, min(start + 20, first + count))
        run = keyed_run([("T", f"k{number} all", f"u{number}") for number in numbers], body=body)
        offsets += store.append_run(run).log_offsets.tolist()
    return offsets


def offsets_of(store: MessageStore, key: str, *, topic: str = "T", unique: bool = False) -> list[int]:
    return [decode(raw).log_offset for raw in store.query(KeyQuery(topic, key, unique=unique)).records]


def check_findable(
    store: MessageStore, offsets: list[int], *, first: int = 0, numbers: Iterable[int] | None = None
) -> None:
    """Each message is found by its key and its unique key, and nothing else is. ``numbers``: with gaps."""
    for number, log_offset in zip(numbers or range(first, first + len(offsets)), offsets, strict=True):
        assert offsets_of(store, f"k{number}") == [log_offset], number
        assert offsets_of(store, f"u{number}", unique=True) == [log_offset], number
    common = offsets_of(store, "all")
    assert common == sorted(common)[-64:]
    assert offsets[-1] in common


def opened_index(
    directory: Path, *, end: int = 1 << 40, clean: bool = True, start: int = 0, shape: IndexShape = SHAPE
) -> Index:
    """The index of a store directory, without the store."""
    directory.mkdir(exist_ok=True)
    index = Index(StorePaths(directory), shape, ticking())
    index.load(KnownLog(start, end, clean, lambda log_offset: None), full_until_ms=0)
    return index


def index_bytes(directory: Path) -> list[bytes]:
    """All index files in order; names tell only when they were made."""
    return [path.read_bytes() for path in sorted((directory / "index").iterdir())]


class PlainIndexFile:
    """RocketMQ's way to put one key, in plain words: what the real one is compared with."""

    def __init__(self, shape: IndexShape, time_ms: int = 0, log_offset: int = 0) -> None:
        self.shape = shape
        self.begin_ms = self.end_ms = time_ms
        self.begin_offset = self.end_offset = log_offset
        self.used, self.count = 0, 1
        self.slots = [0] * shape.slots
        self.entries = [(0, 0, 0, 0)] * shape.entries

    def put(self, hash_value: int, log_offset: int, time_ms: int) -> bool:
        if self.count >= self.shape.entries:
            return False
        slot = hash_value % self.shape.slots
        seconds = min(max(0, (time_ms - self.begin_ms) // 1000), 2**31 - 1) if self.begin_ms > 0 else 0
        self.entries[self.count] = (hash_value, log_offset, seconds, self.slots[slot])
        if self.count == 1:
            self.begin_ms, self.begin_offset = time_ms, log_offset
        self.used += self.slots[slot] == 0
        self.slots[slot] = self.count
        self.count += 1
        self.end_ms, self.end_offset = time_ms, log_offset
        return True

    def bytes(self) -> bytes:
        header = struct.pack(
            ">4q2i", self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used, self.count
        )
        entries = b"".join(struct.pack(">iqii", *entry) for entry in self.entries)
        return header + struct.pack(f">{self.shape.slots}i", *self.slots) + entries
