"""Check points and acks of popped messages: a broker of RocketMQ 5 keeps them as records of its revive topic.

Until they are due they lie in the topic of the timer wheel, so most of them are there twice.
"""

from typing import Any

import msgspec
from dejamq_proto.loose_json import BAD_JSON
from dejamq_proto.names import PROPERTY_REAL_TOPIC, PROPERTY_TAGS, REVIVE_PREFIX, TIMER_TOPIC
from dejamq_proto.records.record import Record

from dejamq_analytics.evidence.mark import MS, Mark

CHECK_POINT, ACK, ACKS = "ck", "ack", "bAck"


def is_one(record: Record) -> bool:
    """Whether a record is of this kind."""
    return record.topic.startswith(REVIVE_PREFIX) or (
        record.topic == TIMER_TOPIC and record.properties.get(PROPERTY_REAL_TOPIC, "").startswith(REVIVE_PREFIX)
    )


def mark(record: Record, store: str) -> Mark | None:
    """None for a record that nobody can read."""
    kind = record.properties.get(PROPERTY_TAGS)
    try:
        body: Any = msgspec.json.decode(record.body)
        said = {"topic": body["t"], "queue_id": body["q"], "group": body["c"], "pop_time": body["pt"]}
        if kind == CHECK_POINT:
            what, more = "popped", {
                "start": body["so"], "invisible_ms": body["it"],
                "offsets": [body["so"] + apart for apart in body.get("d") or range(body["n"])],
            }  # fmt: skip
        elif kind in (ACK, ACKS):
            what, more = "acked", {"start": body["so"], "offsets": body["aol"] if kind == ACKS else [body["ao"]]}
        else:
            return None
    except (KeyError, TypeError, *BAD_JSON):
        return None
    source = f"{store} log offset {record.log_offset}"
    return Mark(record.born_timestamp_ms * MS, MS, source, store, what, said | more)
