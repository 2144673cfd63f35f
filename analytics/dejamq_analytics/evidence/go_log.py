"""The log of rocketmq-client-go, whose lines are logrus text or JSON: a message and its fields."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.evidence.client_log import ALL_QUEUES
from dejamq_analytics.evidence.mark import MS, SECOND, Mark, QueueName, whole
from dejamq_analytics.evidence.text_lines import STAMP, offset_of, stamp_us

FIELDS = re.compile(r'(?<![\w.])([\w.]++)=("(?:[^"\\]|\\.)*+"|\S+)')
CLUES = {
    "the consumer start beginning": "starting",
    "will remove client from clientMap": "closed",
    "MessageQueue do balance done": "assigned",
    "fetch offset of mq from broker success": "begun",
    "update offset to broker success": "persisted",
    "remove unnecessary mq when updateProcessQueueTable": "dropped",
    "remove unnecessary mq because unsubscribed": "unsubscribed",
    "remove unnecessary mq because pull was expired": "idle",
    "processQueue is dropped without process consume result.": "thrown_away",
}
GO_QUEUE = re.compile(
    r"topic[=:]\s?([^,\]\s=:]+),\s*(?:brokerName|broker)[=:]\s?([^,\]\s]+),\s*queueId[=:]\s?(\d+)", re.I
)


def fields_of(text: str) -> dict[str, str]:
    """Of one line, in whichever of the two forms."""
    if text.startswith("{"):
        try:
            return {str(name): str(value) for name, value in msgspec.json.decode(text).items()}
        except (AttributeError, *BAD_JSON):
            return {}
    return {name: _bare(value) for name, value in FIELDS.findall(text)}


def is_one(text: str) -> bool:
    """Whether a line is one of this client's."""
    return ("msg=" in text or '"msg"' in text) and _what(fields_of(text).get("msg", "")) is not None


def marks(lines: Iterable[tuple[int, str]], path: str, host: str) -> Iterator[Mark]:
    """What its lines tell."""
    for number, text in lines:
        said = fields_of(text)
        what = _what(said.get("msg", ""))
        at = _at(said.get("time", ""))
        if what is None or at is None:
            continue
        try:
            told = _said(what, said)
        except ValueError:  # a number that no client writes: the line is damaged
            continue
        if told is not None:
            yield Mark(at[0], at[1], f"{path}:{number}", host, what, told)


def _what(message: str) -> str | None:
    return next((kind for words, kind in CLUES.items() if message.startswith(words)), None)


def _at(text: str) -> tuple[int, int] | None:
    """With a zone: logrus always writes one."""
    stamp = STAMP.match(text)
    if stamp is None or not stamp[4]:
        return None
    at_us = stamp_us(stamp, offset_of("Z"))
    return None if at_us is None else (at_us, MS if stamp[3] else SECOND)


def _said(what: str, fields: dict[str, str]) -> dict[str, Any] | None:
    said: dict[str, Any] = {
        "group": fields.get("consumerGroup", ""), "client_id": fields.get("clientID", ""),
        "topic_of_round": fields.get("topic", ""), "strategy": "by go", "reason": "persistAll",
    }  # fmt: skip
    queue = _queue(fields.get("MessageQueue", ""))
    if what in ("starting", "closed"):
        said["model"] = fields.get("messageModel", "").upper()
        return said
    if what == "assigned":
        every = (_queue(f"{one}]") for one in re.split(r"\]", fields.get("rebalanceResultSet", "")))
        said["queues"] = [one for one in every if one]
        said["all_queues"] = whole(fields.get("mqAllSize", 0))
        said["all_members"] = whole(fields.get("cidAllSize", 0))
        return said
    if queue is None:
        return None
    said["queue"] = queue
    if fields.get("offset", "").lstrip("-").isdigit():
        said["value"] = whole(fields["offset"])
    return said


def _queue(text: str) -> QueueName | None:
    found = ALL_QUEUES.search(text)
    if found:
        return QueueName(found["topic"], found["broker"], whole(found["queue"]))
    short = GO_QUEUE.search(text)
    return QueueName(short[1], short[2], whole(short[3])) if short else None


def _bare(value: str) -> str:
    return value[1:-1].replace('\\"', '"') if value.startswith('"') else value
