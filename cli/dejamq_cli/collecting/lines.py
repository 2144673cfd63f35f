"""Lines of evidence: JSON objects, one a line. ``docs/evidence.md`` describes them for readers."""

import base64
import time
from typing import Any, NamedTuple

import msgspec
from dejamq_proto.loose_json import as_json
from dejamq_proto.names import PROPERTY_KEYS
from dejamq_proto.records.compression import BadCompression, decompress
from dejamq_proto.records.hosts import host_text
from dejamq_proto.records.record import Record
from dejamq_proto.remoting.header import Command

FORMAT = 1
_encoder = msgspec.json.Encoder()


def now_ms() -> int:
    """This machine's wall clock, by which all of a session's lines are."""
    return time.time_ns() // 1_000_000


class Source(NamedTuple):
    """Who answers. Name servers have no names."""

    address: str
    cluster: str = ""
    broker: str = ""
    broker_id: int = 0

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"source": self.address}
        if self.broker:
            found |= {"cluster": self.cluster, "broker": self.broker, "broker_id": self.broker_id}
        return found


class Told(NamedTuple):
    """An answer with the times, by this machine's clock, at which its question left and it came."""

    command: Command
    asked_ms: int
    at_ms: int


def answer_line(kind: str, source: Source, told: Told, **about: Any) -> bytes:
    """``about``: what the question named."""
    command = told.command
    line = {"kind": kind, "at_ms": told.at_ms, "asked_ms": told.asked_ms} | source.fields() | about
    line["code"] = command.code
    if command.remark:
        line["remark"] = command.remark
    return _written(line | _body(command.body))


def trace_line(source: Source, told: Told, record: Record) -> bytes:
    """One message of the trace topic. A body that cannot be inflated is kept as it came, with its ``sys_flag``."""
    properties = record.properties
    keys = properties.pop(PROPERTY_KEYS, "")
    line = {"kind": "trace", "at_ms": told.at_ms, "asked_ms": told.asked_ms} | source.fields()
    line |= {
        "topic": record.topic, "queue_id": record.queue_id, "queue_offset": record.queue_offset,
        "log_offset": record.log_offset, "stored_ms": record.store_timestamp_ms, "born_ms": record.born_timestamp_ms,
        "born_host": host_text(record.born_host), "store_host": host_text(record.store_host), "keys": keys,
        "properties": properties,
    }  # fmt: skip
    try:
        return _written(line | _text(decompress(record.body, record.sys_flag), "body"))
    except BadCompression:
        return _written(line | {"sys_flag": record.sys_flag, "body_base64": base64.b64encode(record.body).decode()})


def session_line(event: str, **about: Any) -> bytes:
    """What befell the collecting itself."""
    return _written({"kind": "session", "at_ms": now_ms(), "event": event} | about)


def _body(raw: bytes) -> dict[str, Any]:
    """RocketMQ's JSON as JSON."""
    if not raw:
        return {}
    try:
        return {"body": msgspec.Raw(as_json(raw.decode()))}
    except ValueError:
        return _text(raw, "body_text")


def _text(raw: bytes, name: str) -> dict[str, Any]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(raw).decode()}


def _written(line: dict[str, Any]) -> bytes:
    return _encoder.encode(line) + b"\n"
