"""Answers that ``dejamq collect`` polled from a running cluster: trace messages, offsets, members, routes."""

import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dejamq_analytics.evidence.mark import MS, Mark
from dejamq_analytics.evidence.offset_files import offsets_of
from dejamq_analytics.evidence.text_lines import raw_lines
from dejamq_analytics.evidence.trace import TraceMessage


def read(path: Path, shown: str) -> Iterator[TraceMessage | Mark]:
    """Its lines, as far as an audit uses them. A torn last line and kinds that are not known are left out."""
    for number, text in raw_lines(path):
        try:
            told: Any = msgspec.json.decode(text)
        except msgspec.DecodeError:
            continue
        if not isinstance(told, dict):
            continue
        kind, source = told.get("kind"), f"{shown}:{number}"
        if kind == "trace":
            yield TraceMessage(
                source, str(told.get("born_host", "")), _body(told), int(told.get("born_ms", 0)),
                int(told.get("stored_ms", 0)),
            )  # fmt: skip
        elif kind == "routes" and told.get("code") == 0:
            names = {
                data["brokerName"]: data["brokerAddrs"]["0"]
                for data in (told.get("body") or {}).get("brokerDatas", [])
                if "0" in data.get("brokerAddrs", {})
            }
            yield _mark(told, source, "routed", {"brokers": names})
        elif kind == "offsets" and told.get("code") == 0:
            table = (told.get("body") or {}).get("offsetTable", {})
            yield _mark(told, source, "offsets", {"broker": told.get("broker", ""), "offsets": offsets_of(table)})


def _mark(told: dict[str, Any], source: str, what: str, said: dict[str, Any]) -> Mark:
    at_ms, asked_ms = int(told.get("at_ms", 0)), int(told.get("asked_ms", 0))
    return Mark(asked_ms * MS, max(0, at_ms - asked_ms) * MS, source, str(told.get("source", "")), what, said)


def _body(told: dict[str, Any]) -> str:
    if "body_base64" in told:
        return binascii.a2b_base64(told["body_base64"]).decode("utf-8", "replace")
    return str(told.get("body", ""))
