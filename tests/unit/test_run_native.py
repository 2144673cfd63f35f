"""Runs read by the compiled pass: it finds what the columns find, and leaves to them whatever is not plainly fit."""

from typing import Any

import msgspec
import numpy as np
import pytest
from dejamq_proto.native import COMPILED, join, scan
from dejamq_proto.records import record, run
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

if not COMPILED:
    pytest.skip("dejamq was installed without its compiled parts", allow_module_level=True)

PROPERTIES = [b"", b"UNIQ_KEY\x01" + b"7F000001" * 4 + b"\x02", b"TAGS\x01" + b"a" * 500 + b"\x02"]
RECORDS = st.builds(
    lambda topic, queue_id, body, properties: record.Outgoing.to(topic).encode(queue_id, 1, body, properties),
    st.sampled_from(["t", "orders", "t" * 127]), st.integers(0, 7), st.binary(max_size=64), st.sampled_from(PROPERTIES),
)  # fmt: skip
RUNS = st.lists(RECORDS, min_size=1, max_size=6)


def sizes_of(records: list[bytes]) -> run.Ints:
    return np.array([len(each) for each in records], np.int64)


def by_columns(data: bytes, sizes: run.Ints) -> run.Run | None:
    """None for what the columns refuse."""
    try:
        return run._demanded(np.frombuffer(data, np.uint8), sizes)
    except run.BadRun:
        return None


def same(one: run.Run, other: run.Run) -> bool:
    return all(
        np.array_equal(mine, others)
        for mine, others in zip(msgspec.structs.astuple(one), msgspec.structs.astuple(other), strict=True)
    )


@given(RUNS)
def test_what_stands_where_is_what_the_columns_say(records: list[bytes]) -> None:
    data, sizes = b"".join(records), sizes_of(records)
    assert scan(data, sizes) is not None
    expected = by_columns(data, sizes)
    assert expected is not None
    assert same(run.parse(data, sizes), expected)


@given(RUNS, st.data())
def test_of_a_run_with_changed_bytes_it_takes_what_the_columns_take_and_no_more(
    records: list[bytes], chosen: st.DataObject
) -> None:
    data, sizes = bytearray(b"".join(records)), sizes_of(records)
    for _ in range(chosen.draw(st.integers(1, 3))):
        at = chosen.draw(st.integers(0, len(data) - 1) | st.sampled_from([0, 3, 4, 7, 36, 39, 84, 87, 88]))
        data[at] = chosen.draw(st.integers(0, 255))
    expected = by_columns(bytes(data), sizes)
    if scan(data, sizes) is None:
        assert expected is None or (expected.headers["magic"] != record.MAGIC_V1).any()
    else:
        assert expected is not None
        assert same(run.parse(data, sizes), expected)


@given(RUNS, st.lists(st.integers(-5, 400) | st.sampled_from([-(1 << 63), (1 << 63) - 1]), max_size=7))
def test_sizes_that_are_not_the_records_are_left_to_the_columns(records: list[bytes], sizes: list[int]) -> None:
    announced = np.array(sizes, np.int64)
    if sizes != sizes_of(records).tolist():
        assert scan(b"".join(records), announced) is None


@given(RUNS, st.integers(1, 200))
def test_a_run_that_ends_early_or_late_is_left_to_the_columns(records: list[bytes], count: int) -> None:
    data, sizes = b"".join(records), sizes_of(records)
    assert scan(data[: max(0, len(data) - count)], sizes) is None
    assert scan(data + bytes(count), sizes) is None


def test_a_record_with_a_wide_topic_is_left_to_the_columns() -> None:
    wide = record.Outgoing.to("t" * 200).encode(0, 1, b"x", b"")
    assert scan(wide, sizes_of([wide])) is None
    assert len(run.parse(wide, sizes_of([wide]))) == 1


@pytest.mark.parametrize("given_things", [(), (b"",), (b"", b"", b""), ("text", b""), (b"", None)])
def test_it_refuses_what_is_no_data_and_sizes(given_things: tuple[object, ...]) -> None:
    with pytest.raises(TypeError):
        scan(*given_things)


def test_sizes_that_are_cut_are_no_sizes() -> None:
    assert scan(b"x" * 100, b"1234567") is None


HEADER = record.Outgoing.to("t").header
PARTS = st.tuples(
    st.sampled_from(["t", "orders", "t" * 200]), st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=64),
    st.sampled_from(["", "7F000001" * 4]), st.integers(0, (1 << 63) - 1),
)  # fmt: skip


@given(st.lists(PARTS, min_size=1, max_size=6), st.integers(0, (1 << 63) - 1))
def test_records_joined_from_parts_are_those_made_one_by_one(parts: list[tuple[Any, ...]], born_ms: int) -> None:
    out = [record.Outgoing.to(topic) for topic, *_ in parts]
    rest = b"\x02TAGS\x01a\x02"
    befores = [one.topic + record.I16.pack(len(part[3]) + len(rest)) for one, part in zip(out, parts, strict=True)]
    queue_ids, bodies, ids = ([part[place] for part in parts] for place in (1, 2, 3))
    alike = [(one.header, before, rest, 1) for one, before in zip(out, befores, strict=True)]
    joined = join(alike, bodies, ids, isal_zlib.crc32, np.array(queue_ids, np.int32), born_ms)
    assert joined == b"".join(
        one.encode(part[1], born_ms, part[2], part[3].encode() + rest) for one, part in zip(out, parts, strict=True)
    )


def parts_of_one(**changed: Any) -> list[Any]:
    """What ``join`` takes, with a change."""
    fit = {
        "alike": [(HEADER, b"b", b"r", 1)], "bodies": [b"body"], "ids": ["id"], "crc32": isal_zlib.crc32,
        "queue_ids": np.zeros(1, np.int32), "born_ms": 1,
    }  # fmt: skip
    return list((fit | changed).values())


@pytest.mark.parametrize(
    "changed",
    [
        {"ids": ["\xc4"]}, {"ids": [b"id"]}, {"ids": []}, {"ids": ("id",)}, {"bodies": [bytearray(b"x")]},
        {"bodies": (b"body",)}, {"bodies": [b"body"] * 2}, {"queue_ids": np.zeros(2, np.int32)}, {"alike": []},
        {"alike": ((HEADER, b"b", b"r", 1),)}, {"alike": [(b"short", b"b", b"r", 1)]},
        {"alike": [(HEADER, b"b", b"r")]},
        {"alike": [(HEADER, "b", b"r", 1)]}, {"alike": [(HEADER, b"b", None, 1)]}, {"alike": [(HEADER, b"b", b"r", 2)]},
        {"alike": [(HEADER, b"b", b"r", -1)]}, {"alike": [(HEADER, b"b", b"r", 1 << 70)]},
        {"alike": [(HEADER, b"b", b"r", "1")]}, {"alike": [(HEADER, b"b", b"r", 1)] * 2}, {"alike": [HEADER]},
    ],
)  # fmt: skip
def test_parts_that_are_not_plainly_fit_are_left_to_the_columns(changed: dict[str, Any]) -> None:
    assert join(*parts_of_one()) is not None
    assert join(*parts_of_one(**changed)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"born_ms": "now"}, {"crc32": None}, {"crc32": str}, {"crc32": lambda _: -1}, {"queue_ids": None},
        {"born_ms": 1 << 64}, {"bodies": ["text"]},
    ],
)  # fmt: skip
def test_what_is_no_part_at_all_raises(changed: dict[str, Any]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        join(*parts_of_one(**changed))


def test_bodies_that_go_while_their_crcs_are_found_are_no_run() -> None:
    bodies = [b"body"] * 3

    def let_go(_: bytes) -> int:
        bodies.clear()
        return 1

    changed = {"bodies": bodies, "ids": ["id"] * 3, "queue_ids": np.zeros(3, np.int32), "crc32": let_go}
    assert join(*parts_of_one(alike=[(HEADER, b"b", b"r", 3)], **changed)) is None


def test_what_is_alike_is_said_once_for_records_side_by_side() -> None:
    out = [record.Outgoing.to(topic) for topic in ("t", "orders")]
    bodies, ids = [b"%d" % number for number in range(5)], [f"{number:032X}" for number in range(5)]
    counts = [2, 3]
    befores = [one.topic + record.I16.pack(33) for one in out]
    alike = [(one.header, before, b"\x02", count) for one, before, count in zip(out, befores, counts, strict=True)]
    joined = join([*alike, (HEADER, b"", b"", 0)], bodies, ids, isal_zlib.crc32, np.arange(5, dtype=np.int32), 7)
    whose = [out[0]] * 2 + [out[1]] * 3
    assert joined == b"".join(
        one.encode(queue_id, 7, body, text.encode() + b"\x02")
        for queue_id, (one, body, text) in enumerate(zip(whose, bodies, ids, strict=True))
    )
