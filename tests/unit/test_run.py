"""Runs of records, checked and filled together."""

from typing import Any

import numpy as np
import pytest
from dejamq_proto.native import COMPILED, crcs_fit
from dejamq_proto.records import record, run
from isal import isal_zlib

compiled = pytest.mark.skipif(not COMPILED, reason="dejamq was installed without its compiled parts")

UNIQUE = b"UNIQ_KEY\x01" + b"7F000001" * 4 + b"\x02"


def make(count: int, *, body: bytes = b"x" * 100, vary: bool = False, properties: bytes = UNIQUE) -> list[bytes]:
    outgoing = record.Outgoing.to("orders")
    return [outgoing.encode(i % 4, 1, body + b"y" * (i % 3 * vary), properties) for i in range(count)]


def parse(records: list[bytes]) -> run.Run:
    return run.parse(b"".join(records), np.array([len(r) for r in records]))


@pytest.mark.parametrize("vary", [False, True])
def test_filling_a_run_gives_the_bytes_that_encoding_one_by_one_gives(vary: bool) -> None:
    records = make(7, vary=vary)
    parsed = parse(records)
    target = np.frombuffer(bytearray(b"".join(records)), np.uint8)
    run.fill(target, parsed, np.arange(10, 17), parsed.positions + 5000, (0x7F000001, 40000, 99, 0x7F000002, 10911))
    for index, at in enumerate(parsed.positions.tolist()):
        decoded = record.decode(target.tobytes(), at)
        assert (decoded.queue_offset, decoded.log_offset, decoded.store_timestamp_ms) == (10 + index, 5000 + at, 99)
        assert (decoded.born_host, decoded.store_host) == (("127.0.0.1", 40000), ("127.0.0.2", 10911))
        assert decoded.body == record.decode(records[index]).body


def test_the_fields_of_a_run_are_those_of_its_records() -> None:
    records = make(9, vary=True)
    parsed = parse(records)
    assert parsed.headers["queue_id"].tolist() == [record.decode(r).queue_id for r in records]
    assert [run.properties_of(parsed, i)["UNIQ_KEY"] for i in range(9)] == ["7F000001" * 4] * 9


@pytest.mark.parametrize("properties", [UNIQUE, b"TAGS\x01a\x02" + UNIQUE, b""])
def test_unique_keys_are_found_wherever_they_stand(properties: bytes) -> None:
    keys = run.unique_keys(parse(make(3, properties=properties)))
    assert keys == ["7F000001" * 4 if properties else ""] * 3


def spoil(records: list[bytes], index: int, at: int, value: bytes) -> list[bytes]:
    raw = bytearray(records[index])
    raw[at : at + len(value)] = value
    return [*records[:index], bytes(raw), *records[index + 1 :]]


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (0, b"\0\0\0\x10", "size"),
        (4, b"\0\0\0\0", "magic"),
        (36, b"\0\0\0\x10", "IPv6"),
        (84, b"\xff\xff\xff\xff", "body length"),
        (188, b"\xff", "topic length"),
    ],
)
def test_the_first_bad_record_is_named_with_its_reason(at: int, value: bytes, reason: str) -> None:
    with pytest.raises(run.BadRun, match=reason) as caught:
        parse(spoil(make(5), 3, at, value))
    assert caught.value.index == 3


def test_a_topic_too_long_for_the_first_version_is_named() -> None:
    raw = bytearray(record.encode(record.Record("t" * 128, 0, b"x")))
    raw[4:8] = record.PAIR.pack(0, record.MAGIC_V1)[4:]
    del raw[89]
    raw[0:4] = record.I32.pack(len(raw))
    with pytest.raises(run.BadRun, match="too long for its version") as caught:
        parse([*make(2), bytes(raw)])
    assert caught.value.index == 2


def test_a_body_that_does_not_match_its_crc_is_named() -> None:
    parsed = parse(spoil(make(5), 2, record.HEADER_SIZE, b"z"))
    with pytest.raises(run.BadRun, match="CRC") as caught:
        run.check_crcs(parsed)
    assert caught.value.index == 2


@compiled
@pytest.mark.parametrize("at", [-1, -(1 << 62), 1 << 62, 300])
def test_the_compiled_pass_reads_nothing_outside_the_run(at: int) -> None:
    data = b"".join(make(2, body=b"x" * 200))
    assert crcs_fit(data, np.array([0], np.int64), isal_zlib.crc32)
    assert not crcs_fit(data[:380], np.array([0, at], np.int64), isal_zlib.crc32)
    assert not crcs_fit(data[:87], np.array([0], np.int64), isal_zlib.crc32)
    assert not crcs_fit(data[:88], np.array([0], np.int64), isal_zlib.crc32)


@compiled
def test_what_the_crc_function_raises_is_raised() -> None:
    def fails(_: Any) -> int:
        raise OSError("no crc")

    with pytest.raises(OSError, match="no crc"):
        crcs_fit(make(1)[0], np.array([0], np.int64), fails)
    with pytest.raises(TypeError):
        crcs_fit(make(1)[0], np.array([0], np.int64), lambda _: "none")  # type: ignore[arg-type, return-value]


@compiled
def test_a_body_that_somebody_keeps_stays_what_it_was() -> None:
    kept: list[memoryview] = []

    def keep(body: Any) -> int:
        kept.append(memoryview(body))
        return isal_zlib.crc32(body)

    data = bytearray(b"".join(make(3, vary=True)))
    positions = parse(make(3, vary=True)).positions
    assert crcs_fit(data, positions, keep)
    assert [bytes(body) for body in kept] == [b"x" * 100 + b"y" * more for more in range(3)]
    with pytest.raises(BufferError):
        data.clear()  # kept as well


@compiled
def test_who_keeps_the_window_sees_the_last_body_that_was_there() -> None:
    kept: list[Any] = []

    def keep(body: Any) -> int:
        kept.append(body)
        return isal_zlib.crc32(body)

    for size in (b"\x40\0\0\0", b"\xff\xff\xff\xff"):
        records = spoil(make(2), 1, 84, size)
        assert not crcs_fit(b"".join(records), np.array([0, len(records[0])], np.int64), keep)
        assert bytes(kept[-1]) == b"x" * 100


def test_a_record_of_another_topic_is_named() -> None:
    records = make(4)
    records[1] = record.Outgoing.to("others").encode(0, 1, b"x" * 100, UNIQUE)
    with pytest.raises(run.BadRun, match="topic") as caught:
        run.check_topic(parse(records), b"orders")
    assert caught.value.index == 1


def test_bytes_after_the_last_record_are_refused() -> None:
    records = make(2)
    with pytest.raises(run.BadRun, match="follow the last"):
        run.parse(b"".join(records) + b"?", np.array([len(r) for r in records]))


def test_an_empty_run_is_refused() -> None:
    with pytest.raises(run.BadRun, match="empty"):
        run.parse(b"", np.array([], np.int64))


@pytest.mark.parametrize("count", [0, 1, 3, 850])
def test_every_is_what_all_is(count: int) -> None:
    holds = np.ones(count, np.bool_)
    assert run.every(holds)
    for index in {0, count // 2, count - 1} if count else ():
        holds[:] = True
        holds[index] = False
        assert not run.every(holds)
        assert not run.every(np.repeat(holds, 3)[1::3])
