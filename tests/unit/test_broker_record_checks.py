"""What a run says of its records: the compiled pass lets nothing by that the columns refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dejamq_broker.writing import record_checks
from dejamq_broker.writing.record_checks import check_records, tags_code_in
from dejamq_proto.native import COMPILED, announced
from dejamq_proto.records.record import Record, encode
from dejamq_proto.records.run import BadRun, Run, parse
from dejamq_proto.wire.messages import SendRun
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

compiled = pytest.mark.skipif(not COMPILED, reason="dejamq was installed without its compiled parts")

MOST_BODY = 20
KEY = b"UNIQ_KEY\x01" + b"7F000001" * 4 + b"\x02"
TOPICS = ["t", "orders", "orders-2", "ö" * 5, "t" * 127]
TAGS = [
    b"", KEY, KEY + b"TAGS\x01paid\x02", b"TAGS\x01paid", KEY + b"TAGS\x01\x02",
    KEY + b"TAGS\x01paid\x02TAGS\x01due\x02", KEY + b"TAGS\x01\xc3\xb6\x02", b"XTAGS\x01paid\x02",
    b"k\x01TAGS\x01paid\x02", b"TAGS\x01a\x01b\x02", b"TAGS", b"TAGS\x01\xff\x02",
    b"TAGS\x01" + b"wide" * 40 + b"\x02",
]  # fmt: skip
RECORDS = st.builds(
    lambda topic, queue_id, body, properties, sys_flag: Record(
        topic=topic, queue_id=queue_id, body=body, raw_properties=properties, sys_flag=sys_flag
    ),
    st.sampled_from(TOPICS), st.integers(0, 2), st.binary(min_size=1, max_size=MOST_BODY), st.sampled_from(TAGS),
    st.sampled_from([0, 0, 0, 1]),
)  # fmt: skip


def honest(records: list[Record], *, brief: bool = False) -> SendRun:
    """A run that says what its records say; ``brief``: where it may, without an index and without tags codes."""
    queues = list(dict.fromkeys((record.topic, record.queue_id) for record in records))
    encoded = [encode(record) for record in records]
    run = SendRun(queues=queues, records=[b"".join(encoded)], sizes=np.array(list(map(len, encoded)), "<u4"))
    codes = [tags_code_in(record.raw_properties) for record in records]
    if len(queues) > 1 or not brief:
        index = [queues.index((record.topic, record.queue_id)) for record in records]
        run.queue_index = np.array(index, "<u4")
    if any(codes) or not brief:
        run.tags_codes = np.array(codes, "<i4")
    return run


def refusal(run: SendRun, parsed: Run) -> tuple[int, str] | None:
    try:
        check_records(parsed, run, MOST_BODY)
    except BadRun as bad:
        return bad.index, str(bad)
    return None


@pytest.fixture(scope="module")
def by_columns() -> Callable[[SendRun, Run], tuple[int, str] | None]:
    def answer(run: SendRun, parsed: Run) -> tuple[int, str] | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_checks, "announced", lambda *_: None)
            return refusal(run, parsed)

    return answer


def given_to_the_pass(run: SendRun) -> list[Any]:
    """Five places of each record, its queue, its tags code, the bytes, the queues, and the most bytes of a body."""
    parsed = parse(run.records[0], run.sizes)
    return [
        parsed.positions, parsed.topic_at, parsed.topic_size, parsed.properties_at, parsed.properties_size,
        run.queue_index, run.tags_codes, parsed.data, run.queues, MOST_BODY,
    ]  # fmt: skip


def passes(arguments: list[Any]) -> bool:
    answer: Callable[..., bool] = announced
    return answer(*arguments)


@given(records=st.lists(RECORDS, min_size=1, max_size=6), brief=st.booleans())
def test_a_run_that_says_what_its_records_say_is_taken(records: list[Record], brief: bool) -> None:
    run = honest(records, brief=brief)
    assert refusal(run, parse(run.records[0], run.sizes)) is None


@given(records=st.lists(RECORDS, min_size=1, max_size=6), chosen=st.data())
def test_of_any_other_run_the_first_record_at_fault_is_named_by_the_same_words(
    records: list[Record], chosen: st.DataObject, by_columns: Callable[[SendRun, Run], tuple[int, str] | None]
) -> None:
    run = honest(records)
    for _ in range(chosen.draw(st.integers(1, 3))):
        at = chosen.draw(st.integers(0, len(records) - 1))
        match chosen.draw(st.sampled_from(["code", "index", "queue", "body", "flag"])):
            case "code":
                run.tags_codes[at] = chosen.draw(st.sampled_from([0, 1, -1, 3433164]))
            case "index":
                run.queue_index[at] = chosen.draw(st.integers(0, len(run.queues) - 1))
            case "queue":
                number = chosen.draw(st.integers(0, len(run.queues) - 1))
                run.queues[number] = chosen.draw(st.sampled_from([("t", 0), ("orders", 2), ("orders-", 1), ("T", -1)]))
            case "body":
                size = chosen.draw(st.sampled_from([0, MOST_BODY, MOST_BODY + 1]))
                records[at] = replace(records[at], body=b"x" * size)
            case "flag":
                records[at] = replace(records[at], sys_flag=chosen.draw(st.sampled_from([4, 8, 12])))
    encoded = [encode(record) for record in records]
    run.records, run.sizes = [b"".join(encoded)], np.array(list(map(len, encoded)), "<u4")
    parsed = parse(run.records[0], run.sizes)
    assert refusal(run, parsed) == by_columns(run, parsed)


def test_a_body_that_was_damaged_on_its_way_is_refused() -> None:
    run = honest([Record(topic="t", queue_id=0, body=b"whole", raw_properties=KEY)] * 2)
    data = bytearray(run.records[0])
    data[data.rindex(b"whole")] ^= 1
    run.records = [bytes(data)]
    assert refusal(run, parse(run.records[0], run.sizes)) == (
        1, "record 1 of the run: its body does not match its CRC",
    )  # fmt: skip


@compiled
def test_plain_records_need_no_columns() -> None:
    records = [Record(topic=topic, queue_id=1, body=b"x", raw_properties=TAGS[2]) for topic in TOPICS[:4]]
    assert passes(given_to_the_pass(honest(records))) is True


@compiled
@pytest.mark.parametrize("column", range(7))
def test_columns_of_another_length_are_left_to_others(column: int) -> None:
    arguments = given_to_the_pass(honest([Record(topic="t", queue_id=1, body=b"x", raw_properties=TAGS[2])] * 3))
    arguments[column] = arguments[column][:2]
    assert passes(arguments) is False


@compiled
@pytest.mark.parametrize("column", range(5))
def test_places_beyond_the_run_are_left_to_others(column: int) -> None:
    arguments = given_to_the_pass(honest([Record(topic="t", queue_id=1, body=b"x", raw_properties=KEY)]))
    for wrong in (-1, len(arguments[7]), 1 << 62, -(1 << 63), (1 << 63) - 1):
        arguments[column] = np.array([wrong])
        assert passes(arguments) is False


@compiled
@pytest.mark.parametrize("queues", [[], [("t", 1 << 20)], [("ö", 1)]])
def test_queues_that_are_none_of_the_records_are_left_to_others(queues: list[tuple[str, int]]) -> None:
    run = honest([Record(topic="t", queue_id=1, body=b"x", raw_properties=KEY)])
    run.queues = queues
    assert passes(given_to_the_pass(run)) is False


@compiled
@pytest.mark.parametrize("queue", [("t",), "t", (b"t", 1), ("t", "1"), ("t", 1 << 80), ("\ud800", 1)])
def test_what_is_no_queue_is_an_error(queue: Any) -> None:
    run = honest([Record(topic="t", queue_id=1, body=b"x", raw_properties=KEY)])
    run.queues = [queue]
    with pytest.raises((TypeError, OverflowError, UnicodeEncodeError)):
        passes(given_to_the_pass(run))
