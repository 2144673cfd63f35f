"""Runs of a few records in plain numbers: whatever bytes come, they say nothing that ``run`` does not say too."""

import random

import numpy as np
import pytest
from dejamq_proto.records import record, run, small_runs

UNIQUE = b"UNIQ_KEY\x01" + b"7F000001" * 4 + b"\x02"
PROPERTIES = (b"", UNIQUE, UNIQUE + b"TAGS\x01a\x02", b"TAGS\x01a\x02" + UNIQUE, b"UNIQ_KEY\x01short\x02", UNIQUE[:-1])


def some(chance: random.Random) -> list[bytes]:
    return [
        record.Outgoing.to("T" * chance.randrange(1, 9), reconsume_times=chance.randrange(3)).encode(
            chance.randrange(4), 1, chance.randbytes(chance.randrange(30)), chance.choice(PROPERTIES)
        )
        for _ in range(chance.randrange(1, small_runs.FEW + 1))
    ]


def by_numpy(data: bytes, sizes: list[int]) -> run.Run | None:
    try:
        parsed = run.parse(data, np.array(sizes))
        run.check_crcs(parsed)
    except run.BadRun:
        return None
    return parsed


def assert_same(found: list[small_runs.SmallRecord], parsed: run.Run) -> None:
    headers = parsed.headers
    assert [piece.at for piece in found] == parsed.positions.tolist()
    assert [piece.size for piece in found] == parsed.sizes.tolist()
    for name in ("queue_id", "sys_flag", "reconsume_times", "body_size"):
        assert [getattr(piece, name) for piece in found] == headers[name].tolist()
    assert [small_runs.unique_key(piece.properties) for piece in found] == run.unique_keys(parsed)
    for piece, at, size in zip(found, parsed.topic_at, parsed.topic_size, strict=True):
        assert piece.topic == parsed.data[at : at + size].tobytes()


def test_good_runs_are_read_as_numpy_reads_them(chance: random.Random) -> None:
    for _ in range(200):
        records = some(chance)
        data, sizes = b"".join(records), [len(one) for one in records]
        found, parsed = small_runs.pieces(memoryview(data), sizes), by_numpy(data, sizes)
        assert found is not None
        assert parsed is not None
        assert_same(found, parsed)


def test_of_damaged_runs_nothing_passes_that_numpy_refuses(chance: random.Random) -> None:
    passed = 0
    for _ in range(2000):
        records = some(chance)
        data, sizes = bytearray(b"".join(records)), [len(one) for one in records]
        at = chance.choice([chance.randrange(len(data)), chance.randrange(88), len(data) - chance.randrange(1, 60)])
        data[at] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
        if chance.random() < 0.2:
            sizes[chance.randrange(len(sizes))] += chance.choice([-1, 1, 200, -len(data)])
        found, parsed = small_runs.pieces(bytes(data), sizes), by_numpy(bytes(data), sizes)
        if found is not None:
            passed += 1
            assert parsed is not None
            assert_same(found, parsed)
    assert passed  # a flag, a born time: not every byte is looked at


@pytest.mark.parametrize("topic", ["T" * 127, "T" * 128])
def test_topics_that_need_a_wide_record_are_left_to_numpy(topic: str) -> None:
    data = record.Outgoing.to(topic).encode(0, 1, b"x", b"")
    assert (small_runs.pieces(data, [len(data)]) is None) == (len(topic) > 127)
    assert by_numpy(data, [len(data)]) is not None


def test_an_id_of_32_bytes_beyond_ascii_is_read_as_it_was_written() -> None:
    assert small_runs.unique_key(record.encode_properties({"UNIQ_KEY": "Ä" * 16})) == "Ä" * 16
