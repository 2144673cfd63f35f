"""One reading of journals for all: which lines are events, and what a line says of each of its messages."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_proto.journal import lines
from dejamq_proto.journal.events import EVENTS, Append, Boot, Deliver, Pop, Pull, Result
from dejamq_proto.journal.readings import COLUMNS, RecordPlace, asking_delivery, entered, handed_out, is_whole, stored
from dejamq_proto.journal.writer import open_journal

APPEND = Append(
    origin="sendback", broker_name="a", topics=["t", "u"], queue_ids=[0, 3], queue_index=[1, 0], queue_offsets=[7, 9],
    log_offsets=[100, 200], unique_keys=["K1", ""], origin_refs=["0c:5", ""],
)  # fmt: skip
DELIVER = Deliver(
    pq_id=1, group="g", topic="t", broker_name="a", queue_id=2, client_id="c", delivery_ids=[4, 5],
    queue_offsets=[7, 8], log_offsets=[100, 200], unique_keys=["K1", "K2"], store_hosts=["1.2.3.4:1"],
)  # fmt: skip
RESULT = Result(
    pq_id=1, group="g", topic="t", broker_name="a", queue_id=2, delivery_ids=[4], queue_offsets=[7], status="success",
    mem_off=8,
)  # fmt: skip


def test_each_record_of_a_run_has_its_own_queue_and_its_own_source() -> None:
    first, second = stored(APPEND)
    assert (first.place, first.log_offset, first.unique_key, first.origin_ref) == (
        RecordPlace("a", "u", 3, 7),
        100,
        "K1",
        "0c:5",
    )
    assert (second.place, second.unique_key, second.origin_ref) == (RecordPlace("a", "t", 0, 9), "", "")


def test_each_message_of_a_delivery_has_its_own_id_and_the_host_that_is_told_once() -> None:
    assert [(one.delivery_id, one.place.queue_offset, one.store_host) for one in entered(DELIVER)] == [
        (4, 7, "1.2.3.4:1"), (5, 8, "1.2.3.4:1"),
    ]  # fmt: skip
    assert {one.business_key for one in entered(DELIVER)} == {""}


def test_a_pull_hands_out_a_stretch_of_places_and_a_pop_those_it_names() -> None:
    common: dict[str, Any] = {
        "broker_name": "a", "group": "g", "topic": "t", "queue_id": 0, "client_id": "c", "client_boot_id": "0c",
        "request_seq": 1,
    }  # fmt: skip
    pull = Pull(**common, request_offset=5, next_offset=7, count=2, code=0)
    assert [place.queue_offset for place in handed_out(pull)] == [5, 6]
    pop = Pop(**common, queue_offsets=[5, 9], pop_time=1, invisible_ms=1, start_offset=5, next_offset=10)
    assert [place.queue_offset for place in handed_out(pop)] == [5, 9]


@pytest.mark.parametrize(
    ("ref", "delivery"), [("0c:5", ("0c", 5)), ("a:b:12", ("a:b", 12)), ("", None), (":5", None), ("0c:x", None)]
)
def test_only_a_boot_id_and_a_number_name_the_delivery_that_asked(ref: str, delivery: tuple[str, int] | None) -> None:
    assert asking_delivery(ref) == delivery


@pytest.mark.parametrize(
    "damaged",
    [
        msgspec.structs.replace(APPEND, queue_offsets=[7]),
        msgspec.structs.replace(APPEND, origin_refs=["0c:5"]),
        msgspec.structs.replace(APPEND, queue_index=[2, 0]),
        msgspec.structs.replace(DELIVER, unique_keys=["K1"]),
        msgspec.structs.replace(DELIVER, store_hosts=["x", "y", "z"]),
        msgspec.structs.replace(RESULT, queue_offsets=[]),
    ],
)
def test_a_line_whose_columns_differ_is_damaged(damaged: Append | Deliver | Result) -> None:
    assert all(is_whole(event) for event in (APPEND, DELIVER, RESULT))
    assert not is_whole(damaged)


def test_a_message_column_is_a_list_of_its_event() -> None:
    for event, columns in COLUMNS.items():
        fields = {field.name: field.type for field in msgspec.structs.fields(event)}
        assert [name for name in columns.every if fields.get(name) not in (list[int], list[str])] == []


def test_events_of_the_wanted_kinds_are_read_and_torn_or_damaged_lines_are_not(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, role="broker", process="a-0", boot_id="0b", level="forensic")
    journal.write(Boot(broker_name="a", broker_id=0, address="10.0.0.1:1", clean=True))
    journal.write(APPEND)
    journal.close()
    (path,) = lines.files_in(tmp_path)
    assert lines.boot_id(path) == "0b"
    with path.open("ab") as file:
        file.write(b'{"event":"APPEND","origin":7}\n{"event":"LATER","seq":9}\n{"event":"APPEND","orig')
    assert [event.unique_keys for event in lines.events([path], Append)] == [["K1", ""]]
    assert [type(event) for event in lines.events([path], Boot, Append)] == [Boot, Append]
    assert lines.decode(b'{"event":"LATER","seq":9}') is None


def test_every_event_is_known_by_how_its_line_begins() -> None:
    for event in EVENTS:
        (beginning,) = lines.begins(event)
        assert lines.event_name(beginning + b",") == lines.tag_of(event).encode()
