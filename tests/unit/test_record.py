"""The record codec against records that a real RocketMQ wrote, and against bytes that nobody should send."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from dejamq_proto.records import record
from dejamq_proto.records.hosts import NO_HOST, offset_message_id, parse_offset_message_id
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent.parent / "data" / "golden"


def stored_records(store: str) -> Iterator[bytes]:
    for path in sorted((GOLDEN / store / "store" / "commitlog").iterdir()):
        raw, at = path.read_bytes(), 0
        while at + record.BLANK_SIZE <= len(raw):
            size, magic = record.PAIR.unpack_from(raw, at)
            if magic == record.MAGIC_BLANK or size == 0:
                break
            yield raw[at : at + size]
            at += size


@pytest.mark.parametrize("store", ["clean", "crash"])
def test_every_record_of_a_real_store_encodes_to_the_same_bytes_again(store: str) -> None:
    records = list(stored_records(store))
    assert len(records) > 400
    for raw in records:
        assert record.encode(record.decode(raw)) == raw


@pytest.mark.parametrize("store", ["clean", "crash"])
def test_a_real_stores_manifest_agrees_with_what_we_decode(store: str) -> None:
    by_offset = {r.log_offset: r for r in map(record.decode, stored_records(store))}
    compared = 0
    for queue in json.loads((GOLDEN / store / "manifest.json").read_text())["queues"]:
        for told in queue["records"]:
            ours = by_offset[told["log_offset"]]
            assert ours.topic == queue["topic"]
            assert ours.queue_id == queue["queue_id"]
            assert ours.queue_offset == told["queue_offset"]
            assert ours.offset_message_id == told["offset_msg_id"]
            assert ours.properties.get("TAGS") == told.get("tags")
            assert (ours.store_timestamp_ms, ours.born_timestamp_ms) == (
                told["store_timestamp"],
                told["born_timestamp"],
            )
            assert ours.reconsume_times == told["reconsume_times"]
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("size", [127, 128])
@pytest.mark.parametrize("magic", [None, record.MAGIC_V1, record.MAGIC_V2])
def test_a_record_that_changes_its_topic_is_of_a_version_that_holds_it(size: int, magic: int | None) -> None:
    original = record.Record("t" * size, 0, b"body", b"TAGS\x01a\x02", magic=magic)
    read = record.decode(record.encode(original))
    assert (read.topic, read.body, read.raw_properties) == ("t" * size, b"body", b"TAGS\x01a\x02")
    assert read.magic == (record.MAGIC_V2 if size == 128 else magic or record.MAGIC_V1)
    assert record.encode(read) == record.encode(original)


def test_a_first_version_record_whose_topic_is_too_long_is_none_because_rocketmq_reads_its_length_signed() -> None:
    raw = bytearray(record.encode(record.Record("t" * 128, 0, b"")))
    raw[4:8] = record.PAIR.pack(0, record.MAGIC_V1)[4:]
    del raw[88]
    raw[0:4] = record.I32.pack(len(raw))
    with pytest.raises(record.BadRecord, match="topic length 128"):
        record.decode(bytes(raw))


def test_both_record_versions_are_among_the_golden_ones() -> None:
    magics = {record.decode(raw).magic for raw in stored_records("clean")}
    assert magics == {record.MAGIC_V1, record.MAGIC_V2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("订单", 1129459),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_the_tags_code_is_javas_hash(text: str, expected: int) -> None:
    assert record.java_hash(text) == expected


def test_the_body_check_keeps_31_bits() -> None:
    assert record.body_crc(b"hello") == 0x3610A686
    assert record.body_crc(b"") == 0


def test_an_outgoing_record_leaves_the_brokers_fields_zero() -> None:
    raw = record.Outgoing.to("orders", flag=7, reconsume_times=2).encode(
        3, 1_700_000_000_000, b"paid", b"TAGS\x01a\x02"
    )
    decoded = record.decode(raw)
    assert (decoded.topic, decoded.queue_id, decoded.body, decoded.flag) == ("orders", 3, b"paid", 7)
    assert (decoded.queue_offset, decoded.log_offset, decoded.store_timestamp_ms) == (0, 0, 0)
    assert decoded.store_host == decoded.born_host == NO_HOST
    assert decoded.properties == {"TAGS": "a"}


def test_a_topic_too_long_for_v1_makes_a_v2_record() -> None:
    topic = "%RETRY%" + "g" * 140
    raw = record.Outgoing.to(topic).encode(0, 1, b"x", b"")
    assert record.decode(raw).magic == record.MAGIC_V2
    assert record.decode(raw).topic == topic


def test_ipv6_hosts_survive_a_round_trip() -> None:
    original = record.Record("t", 0, b"x", born_host=("::1", 5), store_host=("2001:db8::7", 10911))
    decoded = record.decode(record.encode(original))
    assert decoded.born_host == ("::1", 5)
    assert decoded.store_host == ("2001:db8::7", 10911)
    assert parse_offset_message_id(decoded.offset_message_id) == (("2001:db8::7", 10911), 0)


def test_an_offset_message_id_names_host_and_log_offset() -> None:
    text = offset_message_id(("127.0.0.1", 10911), 4711)
    assert text == "7F00000100002A9F0000000000001267"
    assert parse_offset_message_id(text) == (("127.0.0.1", 10911), 4711)


def test_an_empty_property_value_is_lost_as_in_rocketmq() -> None:
    assert record.decode_properties(record.encode_properties({"a": "", "b": "1"})) == {"b": "1"}


def test_a_property_text_may_lack_its_last_separator() -> None:
    assert record.decode_properties(b"a\x011\x02b\x012") == {"a": "1", "b": "2"}


def test_a_flipped_body_bit_is_found() -> None:
    raw = bytearray(record.Outgoing.to("t").encode(0, 1, b"body", b""))
    raw[record.HEADER_SIZE] ^= 1
    with pytest.raises(record.BadRecord, match="CRC"):
        record.decode(bytes(raw))


def test_properties_over_32767_bytes_make_no_record() -> None:
    with pytest.raises(record.BadRecord, match="properties"):
        record.encode(record.Record("t", 0, b"x", raw_properties=b"x" * 32768))


@given(st.binary(max_size=400))
def test_any_bytes_are_a_record_or_a_bad_record(raw: bytes) -> None:
    with pytest.raises(record.BadRecord):
        record.decode(raw)


@given(st.data())
def test_a_damaged_record_never_decodes_beyond_its_bytes(data: st.DataObject) -> None:
    raw = bytearray(record.Outgoing.to("orders").encode(1, 1, b"some body", b"TAGS\x01a\x02"))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        decoded = record.decode(bytes(raw))
    except record.BadRecord:
        return
    assert len(decoded.body) + len(decoded.raw_properties) + len(decoded.topic.encode()) <= len(raw)


@pytest.mark.parametrize("store", ["clean", "crash"])
def test_where_and_when_a_record_was_stored_is_read_without_the_rest(store: str) -> None:
    hosts = set()
    for raw in stored_records(store):
        found = record.decode(raw)
        hosts.add(":" in found.born_host[0])
        assert record.stored_at(b"..." + raw, 3) == (found.log_offset, found.store_timestamp_ms)
    assert hosts >= {False}
    wide = record.encode(record.Record(
        topic="T", queue_id=3, body=b"b", log_offset=1 << 40, store_timestamp_ms=17, born_host=("2001:db8::1", 1)
    ))  # fmt: skip
    assert record.stored_at(wide) == (1 << 40, 17)
