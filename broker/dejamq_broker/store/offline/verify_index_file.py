"""Verify's look at one index file by itself: its shape, its header, its slots and its chains."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dejamq_broker.store.index.file import HEADER, HEADER_SIZE, INDEX_ENTRY, SLOT_SIZE, Header, IndexFile, IndexShape
from dejamq_broker.store.log.batch import Ints
from dejamq_broker.store.offline.findings import Severity, StoreFinding

REBUILD = "stop the broker, delete the folder index/ and start it: the index is built again from the log"
ENTRY_SIZE = INDEX_ENTRY.itemsize
TRIED = 1 << 20
Pairs = np.ndarray[tuple[int], np.dtype[np.void]]


def shape_of(path: Path, usual: IndexShape) -> IndexShape | None:
    """How many slots and entries a file has: not written in it, so the one that its header and entries agree with.

    None without such a pair, or when too many would have to be tried.
    """
    size = path.stat().st_size
    if size == usual.file_size:
        return usual
    rest = size - HEADER_SIZE
    most = rest // SLOT_SIZE
    for slots in range(1, min(most, TRIED)):
        entries, left = divmod(rest - slots * SLOT_SIZE, ENTRY_SIZE)
        if left or entries < 2:
            continue
        shape = IndexShape(slots, entries)
        file = IndexFile.load(path, shape)
        if file is not None and _agrees(file):
            return shape
    return None


def _agrees(file: IndexFile) -> bool:
    """First and last entry are those that the header speaks of, and a slot leads to the last one."""
    header = file.header
    if header.next_entry <= 1:
        return False
    last = file.entries(header.next_entry - 1, header.next_entry)[0]
    first = file.entries(1, 2)[0]
    slot = file.read(HEADER_SIZE + int(last["hash"]) % file.shape.slots * SLOT_SIZE, SLOT_SIZE)
    ends = (int(first["log_offset"]), int(last["log_offset"])) == (header.begin_log_offset, header.end_log_offset)
    return ends and int.from_bytes(slot, "big") == header.next_entry - 1


def is_empty(path: Path) -> bool:
    """A file that was made and got no entry yet: its header is written, or not even that."""
    with path.open("rb") as file:
        raw = file.read(HEADER_SIZE)
    return len(raw) == HEADER_SIZE and Header(*HEADER.unpack(raw)).next_entry in (0, 1)


def chain_findings(file: IndexFile, severity: Severity) -> Iterator[StoreFinding]:
    """Slots, previous numbers and header are what they must be when entries come one after another. Raises OSError."""
    entries = file.entries(1, file.header.next_entry)
    where = f"index/{file.path.name}"
    hashes = entries["hash"].astype(np.int64)
    if (hashes < 0).any():
        at = int(np.argmax(hashes < 0)) + 1
        what = f"entry {at} has the hash {int(hashes[at - 1])}, which no key has"
        yield StoreFinding("index-chain", where, what, REBUILD, severity=severity)
        return
    slots = hashes % file.shape.slots
    order = np.argsort(slots, kind="stable")
    starts = np.diff(slots[order], prepend=-1) != 0
    before = np.where(starts, 0, np.roll(order + 1, 1))
    wrong = entries["previous"][order] != before
    for index in order[np.flatnonzero(wrong)[:1]].tolist():
        what = f"entry {index + 1} goes on at {int(entries['previous'][index])} instead of the one before it"
        yield StoreFinding("index-chain", where, what, REBUILD, int(wrong.sum()), severity)
    newest = np.zeros(file.shape.slots, np.int64)
    newest[slots[order]] = order + 1
    yield from _slot_findings(file, newest, severity)


def _slot_findings(file: IndexFile, newest: Ints, severity: Severity) -> Iterator[StoreFinding]:
    """``newest`` is what each slot must hold."""
    where = f"index/{file.path.name}"
    slots = file.slots()
    lost = slots != newest
    for slot in np.flatnonzero(lost)[:1].tolist():
        what = f"slot {slot} leads to entry {int(slots[slot])} instead of {int(newest[slot])}"
        yield StoreFinding("index-slot", where, what, REBUILD, int(lost.sum()), severity)
    used = int(np.count_nonzero(newest))
    if file.header.slots_used != used:
        what = f"the header says that {file.header.slots_used} slots are in use, {used} are"
        yield StoreFinding("index-header", where, what, REBUILD, severity=severity)
