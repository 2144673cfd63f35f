"""One definition of the journal serves its writer and its reader."""

import msgspec
from dejamq_analytics.sources.schema import ENVELOPE, TYPES, UNREADABLE, journal_fields, journal_schema
from dejamq_proto.journal.events import EVENTS, Deliver
from dejamq_proto.journal.lines import tag_of


def test_every_field_of_every_event_is_in_the_schema_with_its_type() -> None:
    columns = journal_fields() | {UNREADABLE: str}
    assert journal_schema() == ", ".join(f"`{name}` {TYPES[kind]}" for name, kind in columns.items())
    for event in EVENTS:
        for field in msgspec.structs.fields(event):
            assert columns.pop(field.name, field.type) == field.type, (event, field.name)
    assert set(columns) == {"event", UNREADABLE}


def test_one_name_has_one_type_in_all_events() -> None:
    types: dict[str, object] = {}
    for event in EVENTS:
        for field in msgspec.structs.fields(event):
            assert types.setdefault(field.name, field.type) == field.type, (event, field.name)


def test_the_envelope_is_in_every_event() -> None:
    assert all(set(ENVELOPE) <= {field.name for field in msgspec.structs.fields(event)} for event in EVENTS)


def test_the_tag_is_the_one_that_the_writer_uses() -> None:
    deliver = Deliver(
        pq_id=1, group="g", topic="t", broker_name="b", queue_id=0, client_id="c", delivery_ids=[1], queue_offsets=[0],
        log_offsets=[0], unique_keys=["k"],
    )  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(deliver))["event"] == tag_of(Deliver) == "DELIVER"
