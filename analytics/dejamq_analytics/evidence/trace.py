"""The trace topic of remoting clients: who sent, who handled which message, with what result.

A trace message has many records. Fields stand between \\u0001, records end with \\u0002, and nothing is escaped.
Clients of different versions write records of different length.
"""

from collections.abc import Iterator
from typing import NamedTuple

from dejamq_analytics.evidence.mark import MS, Mark, moment_us, whole

FIELD, RECORD = "\x01", "\x02"
TOPICS = ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_")
KINDS = ("Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall")
NONE = ("null", "")
CODES = {"0": "success", "1": "timeout", "2": "exception", "3": "wrong_value", "4": "reconsume"}


class TraceMessage(NamedTuple):
    """One message of the trace topic. Times are of the client (``born_ms``) and of the broker (``stored_ms``)."""

    source: str
    host: str
    body: str
    born_ms: int = 0
    stored_ms: int = 0


def is_trace_topic(topic: str, more: frozenset[str] = frozenset()) -> bool:
    """``more``: topics that clients were told to write traces to."""
    return topic in more or topic == TOPICS[0] or topic.startswith(TOPICS[1])


def marks(message: TraceMessage) -> Iterator[Mark]:
    """Its records. What is no record of a known kind is left out."""
    body = message.body
    for kind in KINDS:  # a client of 4.9.8 in the cloud ends its SubAfter records with nothing
        body = body.replace(f"{kind}{FIELD}", f"{RECORD}{kind}{FIELD}")
    for record in body.split(RECORD):
        told = _mark(record.split(FIELD), message)
        if told is not None:
            yield told


def _mark(fields: list[str], message: TraceMessage) -> Mark | None:
    kind, size = fields[0], len(fields)
    try:
        if kind == "Pub" and size >= 13:
            return _pub(fields, message)
        if kind == "EndTransaction" and size >= 13:
            said = {
                "group": fields[3], "topic": fields[4], "unique_key": fields[5], "state": fields[11],
                "from_check": fields[12] == "true",
            }  # fmt: skip
            return _of(message, "decided", moment_us(fields[1]), said)
        if kind == "SubBefore" and size >= 7:
            said = {
                "group": fields[3], "request": fields[4], "unique_key": fields[5], "times": whole(fields[6]),
            }  # fmt: skip
            return _of(message, "entered", moment_us(fields[1]), said)
        if kind == "SubAfter" and size >= 6:
            # before 4.8 it had neither a time nor a group: then it ended when it was sent, at the latest
            at_us = moment_us(fields[7] if size > 7 and fields[7] not in NONE else message.born_ms)
            success = fields[4] == "true"
            code = fields[6] if size > 6 and fields[6] not in NONE else ("0" if success else "4")
            # no other answer than to roll back is neither a success nor a failure
            status = "rollback" if code == "0" and not success else CODES.get(code, "reconsume")
            said = {
                "request": fields[1], "unique_key": fields[2], "success": success, "status": status,
                "group": fields[8] if size > 8 else "", "timed": size > 7,
            }  # fmt: skip
            return _of(message, "ended", at_us, said)
    except ValueError:  # a key with one of the two letters in it, or a torn record
        return None
    return None


def _pub(fields: list[str], message: TraceMessage) -> Mark:
    said = {
        "group": fields[3], "topic": fields[4], "unique_keys": fields[5].split(","), "address": fields[8],
        "cost_ms": whole(fields[10]), "offset_message_id": fields[12] if len(fields) > 13 else "",
        "success": fields[13 if len(fields) > 13 else 12] == "true",
    }  # fmt: skip
    return _of(message, "sent", moment_us(fields[1]), said)


def _of(message: TraceMessage, what: str, at_us: int, said: dict[str, object]) -> Mark:
    said = said | {"born_ms": message.born_ms, "stored_ms": message.stored_ms}
    return Mark(at_us, MS, message.source, message.host, what, said)
