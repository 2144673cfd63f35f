"""Ids that were stored last: the compiled table and the one of Python keep and forget the same ones."""

from typing import Any

import numpy as np
import pytest
from dejamq_broker.dedup.ids import hashes_of, id_of
from dejamq_proto import native
from dejamq_proto.native import recent_ids
from dejamq_proto.records.record import Outgoing, encode_properties
from hypothesis import given
from hypothesis import strategies as st

HASHES = st.lists(st.integers(0, 40) | st.integers(0, (1 << 64) - 1), max_size=300)
STEPS = st.lists(st.tuples(st.sampled_from(["add", "expire", "fresh"]), HASHES), max_size=12)


def table(kind: Any, most: int) -> Any:
    return kind(most)


@pytest.mark.skipif(not native.COMPILED, reason="dejamq was installed without its compiled parts")
@given(STEPS, st.integers(1, 400))
def test_the_compiled_table_is_as_the_other_one(steps: list[tuple[str, list[int]]], most: int) -> None:
    one, other = table(native.RecentIds, most), table(recent_ids.RecentIds, most)
    for now, (step, hashes) in enumerate(steps):
        column, places = np.array(hashes, "<u8"), np.arange(len(hashes), dtype="<i8") + 1000 * now
        if step == "add":
            one.add(column, places, now)
            other.add(column, places, now)
        elif step == "expire":
            one.expire(now // 2)
            other.expire(now // 2)
        else:
            assert one.fresh(column) == other.fresh(column)
        assert (len(one), one.first, one.pushed_out) == (len(other), other.first, other.pushed_out)
        assert [one.find(each) for each in hashes] == [other.find(each) for each in hashes]


NAMES = st.sampled_from(["UNIQ_KEY", "DEDUP_ID", "DEDUP_BY", "TRAN_MSG", "KEYS", ""])
PIECES = st.lists(st.tuples(NAMES, st.sampled_from(["", "UNIQ_KEY", "a", "b", "a" * 32])), max_size=6)


@given(PIECES, st.booleans())
def test_a_record_has_a_hash_where_it_has_an_id(pieces: list[tuple[str, str]], ended: bool) -> None:
    raw = "".join(f"{name}\x01{value}\x02" for name, value in pieces).encode()
    raw = raw if ended else raw[:-1]
    records = [Outgoing.to("t").encode(0, 1, b"x", raw) for _ in range(2)]
    hashes = hashes_of(b"".join(records), np.array(list(map(len, records))))
    assert hashes is not None
    assert hashes[0] == hashes[1]
    properties = {name: value for name, value in pieces if name and value}
    assert bool(hashes[0]) == bool(id_of(properties))


def test_bytes_that_are_no_run_have_no_hashes() -> None:
    record = Outgoing.to("t").encode(0, 1, b"x", encode_properties({"DEDUP_ID": "1"}))
    assert hashes_of(record[:-1], np.array([len(record)])) is None
    assert hashes_of(record, np.array([len(record) - 1])) is None
    assert hashes_of(record[:80], np.array([80])) is None


def test_a_table_keeps_at_least_one_id() -> None:
    for kind in {native.RecentIds, recent_ids.RecentIds}:
        with pytest.raises(ValueError, match="1 to 2"):
            table(kind, 0)
