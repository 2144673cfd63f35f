"""The journal's schema for Spark, made from the event structs, so that writer and reader can never disagree.

One wide row holds any event: the union of all fields, null where an event has no such field or left out a default.
"""

from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from dejamq_proto.journal.events import EVENTS, Event
from dejamq_proto.journal.lines import tag_of

from dejamq_analytics.frames import Column, DataFrame
from dejamq_analytics.frames import functions as sf

TYPES: dict[Any, str] = {
    int: "bigint", str: "string", bool: "boolean", list[int]: "array<bigint>", list[str]: "array<string>"
}  # fmt: skip
"""Fields of events as Spark names their types."""
ENVELOPE = ("role", "process", "boot_id", "seq", "wall_us", "mono_us")
UNREADABLE = "_unreadable"
"""Holds the text of a line that is no event, such as the torn last line of a killed process, or a word for it."""


@cache
def journal_fields() -> dict[str, Any]:
    """All fields of all events with their types. Raises TypeError when two events give one name different types."""
    fields: dict[str, Any] = {"event": str}
    for event in EVENTS:
        for field in msgspec.structs.fields(event):
            if fields.setdefault(field.name, field.type) != field.type:
                raise TypeError(
                    f"{event.__name__}.{field.name} is {field.type}, another event has {fields[field.name]}"
                )
    return fields


def journal_schema() -> str:
    """The columns of a line, as Spark writes a schema."""
    columns = journal_fields() | {UNREADABLE: str}
    return ", ".join(f"`{name}` {TYPES[kind]}" for name, kind in columns.items())


_TOLD: WeakKeyDictionary[DataFrame, AbstractSet[str]] = WeakKeyDictionary()


def telling(events: DataFrame, tags: AbstractSet[str]) -> DataFrame:
    """Remember that these events have only these tags: ``of`` another tag is empty without a job.

    Spark's own plan of a frame has no place for this.
    """
    _TOLD[events] = tags
    return events


def of(events: DataFrame, event: type[Event]) -> DataFrame:
    """The rows of one event with its own fields; what the writer left out as default is filled in."""
    own = [field for field in msgspec.structs.fields(event) if field.name not in (*ENVELOPE, "v")]
    columns = [sf.col(name) for name in ENVELOPE] + [_filled(field) for field in own]
    tag = tag_of(event)
    rows = events.where(sf.col("event") == tag) if tag in _TOLD.get(events, {tag}) else events.limit(0)
    return rows.select(*columns)


def filled(event: type[Event], name: str) -> Column:
    """One field of lines of that event; what the writer left out as default is filled in."""
    return _filled(_fields(event)[name])


@cache
def _fields(event: type[Event]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(event)}


def _filled(field: msgspec.structs.FieldInfo) -> Column:
    """The writer leaves defaults out (``omit_defaults``); without filling them in a 0 would look like an unknown."""
    default = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        default = []
    if default is msgspec.NODEFAULT:
        return sf.col(field.name)
    filler = sf.array().cast(TYPES[field.type]) if default == [] else sf.lit(default)
    return sf.coalesce(sf.col(field.name), filler).alias(field.name)


EVIDENCE = "struct<process:string,boot_id:string,seq:bigint,event:string,summary:string>"
DELIVERY = (
    "struct<process:string,boot_id:string,delivery_id:string,broker_name:string,topic:string,queue_id:bigint,"
    "queue_offset:bigint,offset_message_id:string,delivered_at:timestamp,result:string>"
)
FINDING_COLUMNS = {
    "run_id": "string", "finding_id": "string", "kind": "string", "time": "timestamp", "consumer_group": "string",
    "identity": "string", "message_id": "string", "business_key": "string", "first": DELIVERY, "second": DELIVERY,
    "cause": "string", "stage": "string", "trigger": "string", "certainty": "string", "missing": "string",
    "expected": "boolean", "evidence": f"array<{EVIDENCE}>",
}  # fmt: skip
ANOMALY_COLUMNS = {
    "run_id": "string", "anomaly_id": "string", "kind": "string", "time": "timestamp", "consumer_group": "string",
    "message_id": "string", "broker_name": "string", "topic": "string", "queue_id": "bigint",
    "queue_offset": "bigint", "detail": "string", "evidence": f"array<{EVIDENCE}>",
}  # fmt: skip


def contract(frame: DataFrame, columns: dict[str, str]) -> DataFrame:
    """Exactly these columns with these types; a column that a rule has no word for is null."""
    have = set(frame.columns)
    return frame.select(
        *[
            (sf.col(f"`{name}`") if name in have else sf.lit(None)).cast(kind).alias(name)
            for name, kind in columns.items()
        ]
    )


def id_of(key: Column) -> Column:
    """The id of a finding or anomaly, 32 hexadecimal digits: the same key has the same id in every audit."""
    return sf.substring(sf.sha2(key, 256), 1, 32)
