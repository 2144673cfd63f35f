"""Columns as JSON lists: what the journal's encoder would write of them, made without it."""

import msgspec
import numpy as np
import pytest
from dejamq_proto import native
from dejamq_proto.records import json_columns
from dejamq_proto.records.record import Outgoing, encode_properties
from dejamq_proto.records.run import Run, parse, unique_keys
from hypothesis import given
from hypothesis import strategies as st

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DIGITS = "0123456789ABCDEFabcdefxyzXYZ"
IDS = st.text(DIGITS, min_size=32, max_size=32) | st.sampled_from(
    ["", "short", "Z" * 31 + '"', "Z" * 31 + "\\", "Ä" * 16]
)
needs_compiled = pytest.mark.skipif(not native.COMPILED, reason="dejamq was installed without its compiled parts")


def of(ids: list[str], first: str = "UNIQ_KEY") -> Run:
    """Records with these ids, '' for none."""
    records = [
        Outgoing.to("orders").encode(
            0, 1, b"body", encode_properties({first: one, "TAGS": "a"} if one else {"TAGS": "a"})
        )
        for one in ids
    ]
    return parse(b"".join(records), np.array(list(map(len, records)), np.int64))


@given(st.lists(INT64 | st.integers(-1000, 1000)), st.data())
def test_numbers_of_a_column_are_listed_as_the_encoder_lists_them(numbers: list[int], chosen: st.DataObject) -> None:
    first = chosen.draw(st.integers(0, len(numbers)))
    end = chosen.draw(st.integers(first, len(numbers)))
    assert bytes(json_columns.numbers(np.array(numbers, np.int64), first, end)) == msgspec.json.encode(
        numbers[first:end]
    )


@given(st.integers(0, (1 << 63) - 100_000), st.lists(st.integers(-20_000, 20_000), max_size=40))
def test_numbers_near_each_other_are_listed_as_the_encoder_lists_them(start: int, apart: list[int]) -> None:
    numbers = [start + one for one in apart]
    assert bytes(json_columns.numbers(np.array(numbers, np.int64), 0, len(numbers))) == msgspec.json.encode(numbers)


@given(st.integers(0, 20_000) | st.integers(0, 1 << 60), st.integers(0, 120))
def test_what_is_counted_is_listed_as_the_encoder_lists_it(first: int, count: int) -> None:
    assert bytes(json_columns.counted(first, first + count)) == msgspec.json.encode(list(range(first, first + count)))


@given(st.lists(IDS, min_size=1, max_size=8))
def test_keys_are_those_that_are_read_one_by_one(ids: list[str]) -> None:
    run = of(ids)
    assert bytes(json_columns.all_keys(run)) == msgspec.json.encode(unique_keys(run)) == msgspec.json.encode(ids)


@needs_compiled
def test_keys_of_a_part_are_found_where_all_have_32_digits_and_else_left_to_the_reader() -> None:
    ids = [f"{number:032X}" for number in range(5)]
    assert bytes(json_columns.keys(of(ids), 1, 3) or b"") == msgspec.json.encode(ids[1:3])
    assert json_columns.keys(of([*ids, "short"]), 0, 6) is None
    assert json_columns.keys(of(ids, "KEYS"), 0, 5) is None


@needs_compiled
def test_a_key_that_would_reach_into_the_next_record_is_left_to_the_reader() -> None:
    """Its properties end without a mark, as RocketMQ allows, and the next record has 128 KiB: 00 02 is in its size."""
    cut = Outgoing.to("orders").encode(0, 1, b"", b"UNIQ_KEY\1" + b"Z" * 31)
    large = Outgoing.to("orders").encode(0, 1, bytes(1 << 17), b"UNIQ_KEY\1" + b"Z" * 32 + b"\2")
    run = parse(cut + large, np.array([len(cut), len(large)], np.int64))
    assert json_columns.keys(run, 0, 2) is None
    assert unique_keys(run) == ["Z" * 31, "Z" * 32]


def test_lists_are_joined_to_one() -> None:
    some = [json_columns.counted(0, 2), json_columns.values(["a"]), json_columns.numbers(np.array([7]), 0, 1)]
    assert msgspec.json.encode(json_columns.joined(some)) == b'[0,1,"a",7]'
    assert json_columns.joined(some[:1]) is some[0]


@needs_compiled
def test_what_is_not_there_is_not_listed() -> None:
    column = np.arange(3)
    for first, end in ((-1, 2), (0, 4), (2, 1)):
        with pytest.raises(IndexError):
            native.numbers(column, first, end)
        with pytest.raises(IndexError):
            native.keys(b"x" * 100, column, first, end)
    with pytest.raises(IndexError):
        native.counted(-1, 2)
    with pytest.raises(OverflowError):
        native.counted(0, 1 << 80)
    with pytest.raises(MemoryError):
        native.counted(0, (1 << 63) // 21 + 1)
    assert native.keys(b"x" * 100, np.array([-1, 1 << 40, 60]), 0, 3) is None
