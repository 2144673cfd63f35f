"""Any bytes at all: nothing crashes, nothing runs for ever, nobody reads beyond the file."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store.log.scan import Damage, End, FoundRecords, LogFiles, walk
from dejamq_proto.records.record import BadRecord, decode, record_size
from dejamq_proto.records.run import BadRun, check_crcs, parse
from fuzzing import SPECIAL, spoiled, survives
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_making import GOLDEN, log_files

FILE_SIZE = 65_536
STORES = 80
LOG = log_files(GOLDEN / "clean" / "store")[0].read_bytes()
RECORDS = [
    piece.data[sum(piece.sizes[:number]) : sum(piece.sizes[: number + 1])]
    for piece in walk(lambda at, size: LOG[at : at + size], LogFiles(0, len(LOG), len(LOG)), 0)
    if isinstance(piece, FoundRecords)
    for number in range(len(piece.sizes))
]
"""What a real RocketMQ wrote, record by record."""

Change = tuple[int, bytes]
CHANGES = st.lists(
    st.tuples(st.integers(0, 5000), st.one_of(st.binary(min_size=1, max_size=9), st.sampled_from(SPECIAL))), max_size=4
)
DATA = st.one_of(st.binary(max_size=2000), st.lists(st.sampled_from(RECORDS), min_size=1, max_size=6).map(b"".join))


def changed(data: bytes, changes: list[Change]) -> bytes:
    spoiled = bytearray(data)
    for at, piece in changes:
        at %= len(spoiled) + 1
        spoiled[at : at + len(piece)] = piece
    return bytes(spoiled)


@given(DATA, CHANGES, st.integers(0, 300), st.booleans())
def test_a_decoded_record_lies_within_its_bytes_and_anything_else_is_said(
    data: bytes, changes: list[Change], at: int, check_crc: bool
) -> None:
    data = changed(data, changes)
    try:
        record = decode(data, at, check_crc=check_crc)
    except BadRecord:
        return
    body, properties = len(record.body), len(record.raw_properties)
    assert at + record_size(len(record.topic.encode()), body, properties, record.sys_flag) <= len(data)


@given(DATA, CHANGES, st.lists(st.integers(-5, 3000), max_size=6))
def test_a_parsed_run_lies_within_its_bytes_and_anything_else_is_said(
    data: bytes, changes: list[Change], announced: list[int]
) -> None:
    data = changed(data, changes)
    try:
        run = parse(data, np.array(announced, np.int64))
        check_crcs(run)
    except BadRun:
        return
    assert int(run.sizes.sum()) == len(data)
    assert (run.properties_at + run.properties_size <= run.positions + run.sizes).all()


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(DATA, CHANGES, st.integers(0, 200), st.integers(0, 70_000))
def test_a_walk_covers_every_byte_once_and_reads_none_beyond(
    data: bytes, changes: list[Change], zeros: int, start: int
) -> None:
    log = changed(data + bytes(zeros) + LOG[start : start + 3000], changes)[: 2 * FILE_SIZE].ljust(2 * FILE_SIZE, b"\0")
    extent = LogFiles(0, len(log), FILE_SIZE)

    def read(at: int, size: int) -> bytes:
        assert 0 <= at < extent.end
        assert size >= 0
        return log[at : min(at + size, extent.file_end(at))]

    reached = 0
    for piece in walk(read, extent, 0):
        assert piece.log_offset == reached or reached < piece.log_offset == extent.file_end(reached)
        if isinstance(piece, End):
            break
        assert isinstance(piece, FoundRecords | Damage)
        assert piece.end > piece.log_offset
        reached = piece.end
    else:
        raise AssertionError("a walk ends with an End")


def test_damage_that_pretends_to_be_huge_takes_no_more_memory_than_the_file(tmp_path: Path) -> None:
    source = shutil.copytree(GOLDEN / "clean" / "store", tmp_path / "store")
    path = log_files(source)[0]
    data = bytearray(path.read_bytes())
    for at in range(0, len(data) - 4, 64):
        data[at : at + 4] = (0x7FFFFFF0).to_bytes(4, "big")
    path.write_bytes(data)
    tracemalloc.start()
    try:
        survives(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 << 20


@pytest.mark.slow
def test_a_store_with_any_damage_opens_or_says_why_not(tmp_path: Path, seed: int) -> None:
    ends = {survives(spoiled(tmp_path, one)) for one in range(seed, seed + STORES)}
    assert "opened" in ends
    assert not any("many lines" in end for end in ends)
