"""Keys of records: found together as they are found one by one, and hashed as Java does."""

import msgspec
import numpy as np
import pytest
from dejamq_broker.store.index.keys import java_hashes, key_hash, keys_of, words_of
from dejamq_broker.store.log.scan import FoundRecords
from dejamq_proto.records.record import (
    SYS_TRANSACTION_COMMIT,
    SYS_TRANSACTION_PREPARED,
    SYS_TRANSACTION_ROLLBACK,
    Outgoing,
    Record,
    decode,
    encode,
    java_hash,
)
from hypothesis import example, given
from hypothesis import strategies as st
from index_making import found, records

SMALLEST = "ajvakuzm"
"""Java's hash of ``T#ajvakuzm`` is the smallest integer, which has no absolute value."""


def one_by_one(records_found: FoundRecords) -> list[tuple[int, int, int]]:
    """What the index must take up, by decoding every record."""
    expected, at = [], 0
    for size in records_found.sizes:
        record = decode(records_found.data, at)
        properties = record.properties
        texts = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        texts += words_of(properties.get("KEYS"))
        if record.transaction_type != SYS_TRANSACTION_ROLLBACK:
            expected += [
                (key_hash(record.topic, text), records_found.log_offset + at, record.store_timestamp_ms)
                for text in texts
            ]
        at += size
    return expected


def together(records_found: FoundRecords) -> list[tuple[int, int, int]]:
    keys = keys_of(records_found)
    return list(zip(keys.hashes.tolist(), keys.log_offsets.tolist(), keys.store_timestamps_ms.tolist(), strict=True))


def raw_record(properties: bytes, topic: str = "T", sys_flag: int = 0) -> bytes:
    record = Record(topic, 0, b"body", properties, sys_flag=sys_flag, store_timestamp_ms=1_700_000_000_000)
    return encode(msgspec.structs.replace(record))


def test_a_key_hashes_as_in_rocketmq() -> None:
    assert key_hash("TopicTest", "key1") == 1655984460
    assert key_hash("TopicTest", "key1") % 5_000_000 == 984460


def test_the_hash_that_has_no_absolute_value_counts_as_0() -> None:
    assert java_hash(f"T#{SMALLEST}") == -(1 << 31)
    assert key_hash("T", SMALLEST) == 0
    assert keys_of(found(records([("T", SMALLEST, "")]))).hashes.tolist() == [0]


def test_a_negative_hash_loses_its_sign() -> None:
    words = [word for word in map(str, range(100)) if java_hash(f"Topic#{word}") < 0]
    assert words
    hashes = keys_of(found(records([("Topic", " ".join(words), "")]))).hashes.tolist()
    assert hashes == [-java_hash(f"Topic#{word}") for word in words]


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=40), min_size=1, max_size=30))
def test_many_hashes_at_once_are_javas(texts: list[str]) -> None:
    data = np.frombuffer(("?" + "".join(texts)).encode(), np.uint8)
    size = np.array([len(text) for text in texts])
    at = 1 + np.cumsum(size) - size
    assert java_hashes(data, at, size).view(np.int32).tolist() == [java_hash(text) for text in texts]


def test_the_unique_key_comes_first_then_the_words_in_their_order() -> None:
    run = found([raw_record(b"KEYS\x01b  a c \x02x\x01y\x02UNIQ_KEY\x01u\x02")])
    assert keys_of(run).hashes.tolist() == [key_hash("T", word) for word in ("u", "b", "a", "c")]


def test_prepared_records_are_taken_up_and_rolled_back_ones_are_not() -> None:
    flags = (0, SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_COMMIT, SYS_TRANSACTION_ROLLBACK)
    run = found([raw_record(b"KEYS\x01k\x02", sys_flag=flag) for flag in flags])
    positions = np.cumsum(run.sizes) - run.sizes
    assert keys_of(run).log_offsets.tolist() == positions[:3].tolist()
    rolled_back = FoundRecords(0, raw_record(b"KEYS\x01k\x02", sys_flag=SYS_TRANSACTION_ROLLBACK), [1], None)
    assert len(keys_of(rolled_back)) == 0


def test_a_record_of_an_ipv6_host_is_taken_up_alone() -> None:
    record = Record("T", 0, b"", b"UNIQ_KEY\x01u\x02KEYS\x01a b\x02", born_host=("::1", 1), store_timestamp_ms=7)
    raw = encode(record)
    keys = keys_of(FoundRecords(500, raw, [len(raw)], None))
    assert keys.hashes.tolist() == [key_hash("T", word) for word in ("u", "a", "b")]
    assert keys.log_offsets.tolist() == [500] * 3
    assert keys.store_timestamps_ms.tolist() == [7] * 3


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"\x02",
        b"\x01",
        b"KEYS\x01\x02",
        b"KEYS\x01 \x02UNIQ_KEY\x01\x02",
        b"KEYS\x01a",
        b"KEYS\x01a\x02KEYS\x01b\x02",
        b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02",
        b"KEYS\x01a\x02KEYS\x01\x02",
        b"KEYS\x01a\x01b\x02",
        b"KEYS\x02KEYS\x01a\x02",
        b"KEYSx\x01a\x02xKEYS\x01b\x02keys\x01c\x02",
        "KEYS\x01订单 a\x02".encode(),
        "x\x01订单\x02KEYS\x01a\x02".encode(),
        b"x\x01\xff\x02KEYS\x01a\xff b\x02",
    ],
)
def test_properties_that_nobody_should_write_are_read_as_everywhere(properties: bytes) -> None:
    plain = b"UNIQ_KEY\x01u\x02KEYS\x01k\x02"
    run = found([raw_record(plain), raw_record(properties), raw_record(plain)])
    assert together(run) == one_by_one(run)
    assert len(together(run)) >= 4


pieces = st.builds(
    lambda name, first, value, second: name + first + value + second,
    st.sampled_from(["KEYS", "UNIQ_KEY", "TAGS", "KEYZ", "xKEYS", ""]),
    st.sampled_from(["\x01", "\x01", "\x01", "\x01", "", "\x02"]),
    st.text("ab 订", max_size=8),
    st.sampled_from(["\x02", "\x02", "\x02", "\x02", ""]),
)
messages = st.tuples(
    st.lists(pieces, max_size=4).map("".join), st.sampled_from(["T", "Topic", "订单"]), st.sampled_from([0, 4, 8, 12])
)


@given(st.lists(messages, min_size=1, max_size=12))
@example([("KEYS\x01a\x02", "T", 0)] * 3)
def test_keys_found_together_are_those_found_one_by_one(drawn: list[tuple[str, str, int]]) -> None:
    run = found([raw_record(properties.encode(), topic, flag) for properties, topic, flag in drawn], 4096)
    assert together(run) == one_by_one(run)


same_size = st.lists(st.sampled_from(b"a0 \x00\x01\x02\x03\x7f\x80\xff"), min_size=3, max_size=3).map(bytes)
usual = st.lists(st.sampled_from(b"a0 "), min_size=3, max_size=3).map(bytes)
rests = st.sampled_from(
    [
        b"", b"TAGS\x01ab\x02", b"TAGS\x01cd\x02", b"KEYS\x01ab\x02", b"TAGS\x01\x02ab", b"TAGS\x01\xe4b\x02",
        b"KEYSx\x01a\x02", b"UNIQ_KEY\x01k\x02", b"aUNIQ_KEY\x01\x02", b"\x01a\x02b\x01c\x02d", b"TAGS\x01a\x01b",
    ]
)  # fmt: skip


@given(st.lists(st.one_of(usual, usual, usual, same_size), min_size=1, max_size=6), rests, rests, st.integers(0, 5))
@example([b"aa0", b"0a "], b"TAGS\x01ab\x02", b"TAGS\x01ab\x02", 0)
@example([b"aa0", b"0a "], b"TAGS\x01ab\x02", b"KEYS\x01ab\x02", 1)
@example([b"aa0", b"\xc3\xa4a", b"a\x80\xff"], b"", b"", 0)
def test_records_that_differ_only_in_their_unique_key_are_taken_up_as_one_by_one(
    keys: list[bytes], rest: bytes, other: bytes, place: int
) -> None:
    raw = [
        raw_record(b"UNIQ_KEY\x01%b\x02" % key + (other if number == place else rest), "T" if number % 2 else "Us")
        for number, key in enumerate(keys)
    ]
    run = found(raw, 4096)
    assert together(run) == one_by_one(run)


def test_of_records_that_are_alike_rolled_back_ones_are_left_out() -> None:
    flags = (0, SYS_TRANSACTION_ROLLBACK, 0)
    run = found([raw_record(b"UNIQ_KEY\x01%02d\x02" % flag, "T", flag) for flag in flags])
    assert together(run) == one_by_one(run)
    assert len(together(run)) == 2


def test_a_run_of_a_thousand_plain_records_is_taken_up_whole() -> None:
    template = Outgoing.to("Orders")
    raw = [
        template.encode(0, 5, b"x", f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01order-{number} all\x02".encode())
        for number in range(1000)
    ]
    run = found(raw, 1 << 30)
    assert together(run) == one_by_one(run)
    assert len(together(run)) == 3000
