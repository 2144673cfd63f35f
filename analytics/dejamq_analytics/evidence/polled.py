"""Answers that ``dejamq collect`` polled from a running cluster: trace messages, offsets, members, routes."""

import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto.loose_json import BAD_JSON

from dejamq_analytics.evidence.mark import Mark, moment_us, whole
from dejamq_analytics.evidence.offset_files import offsets_of
from dejamq_analytics.evidence.text_lines import raw_lines
from dejamq_analytics.evidence.trace import TraceMessage


def read(path: Path, shown: str) -> Iterator[TraceMessage | Mark]:
    """Its lines, as far as an audit uses them. A torn last line and kinds that are not known are left out."""
    for number, text in raw_lines(path):
        try:
            told: Any = msgspec.json.decode(text)
            found = _told(told, f"{shown}:{number}") if isinstance(told, dict) else None
        except (ValueError, TypeError, KeyError, AttributeError, *BAD_JSON):
            continue  # torn, or with something else where its fields are
        if found is not None:
            yield found


def _told(told: dict[str, Any], source: str) -> TraceMessage | Mark | None:
    kind = told.get("kind")
    if kind == "trace":
        times = (whole(told.get(name, 0)) for name in ("born_ms", "stored_ms"))
        return TraceMessage(source, str(told.get("born_host", "")), _body(told), *times)
    if kind == "routes" and told.get("code") == 0:
        names = {
            str(data["brokerName"]): str(data["brokerAddrs"]["0"])
            for data in (told.get("body") or {}).get("brokerDatas", [])
            if "0" in data.get("brokerAddrs", {})
        }
        return _mark(told, source, "routed", {"brokers": names})
    if kind == "offsets" and told.get("code") == 0:
        table = (told.get("body") or {}).get("offsetTable", {})
        return _mark(told, source, "offsets", {"broker": str(told.get("broker", "")), "offsets": offsets_of(table)})
    if kind == "connections" and told.get("code") == 0:
        table = (told.get("body") or {}).get("subscriptionTable", {})
        filters = {
            str(topic): str(one["subString"]) for topic, one in table.items() if one.get("expressionType") == "SQL92"
        }
        group = {"group": str(told.get("group", "")), "filters": filters}
        return _mark(told, source, "filtered", group) if filters else None
    return None


def _mark(told: dict[str, Any], source: str, what: str, said: dict[str, Any]) -> Mark:
    at_us, asked_us = moment_us(told.get("at_ms", 0)), moment_us(told.get("asked_ms", 0))
    return Mark(asked_us, whole(max(0, at_us - asked_us)), source, str(told.get("source", "")), what, said)


def _body(told: dict[str, Any]) -> str:
    if "body_base64" in told:
        return binascii.a2b_base64(told["body_base64"]).decode("utf-8", "replace")
    return str(told.get("body", ""))
