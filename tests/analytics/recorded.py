"""Recorded runs of a real RocketMQ, what is true of each, and an audit of one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from dejamq_analytics.evidence.translate import Reading
from dejamq_analytics.report.verdict import Verdict
from dejamq_analytics.run import Request, run_audit
from dejamq_lab.rocketmq.truth import right_for

RECORDED = Path(__file__).parents[1] / "data" / "rocketmq"
NAMES = sorted(run.parent.name for run in RECORDED.glob("*/truth.json"))
Findings = list[dict[str, Any]]
Delivered = tuple[str, str, int, int]
"""Unique key, topic, queue and offset of a record that came more than once."""


def audited(folder: Path, out: Path) -> tuple[Verdict, Findings]:
    """The verdict on a recorded run, and its findings."""
    _, verdict = run_audit(Request([], out=out, reading=Reading([str(folder)]), engine="duckdb"), lambda text: None)
    return verdict, [row for part in out.rglob("findings/*/*.parquet") for row in pq.read_table(part).to_pylist()]


def truth_of(name: str) -> dict[str, Any]:
    truth: dict[str, Any] = json.loads((RECORDED / name / "truth.json").read_text())
    return truth


def causes_of(truth: dict[str, Any], finding: dict[str, Any]) -> list[str]:
    """The causes that this message's duplicates may have."""
    keys = {one["unique_key"]: one["key"] for one in truth["deliveries"]}
    causes: dict[str, list[str]] = truth["causes"]
    return right_for(causes.get(keys[finding["message_id"]], causes.get("*", [])))


def came_twice(truth: dict[str, Any]) -> set[Delivered]:
    """Records that handlers of one group were given more than once, as the handlers themselves said."""
    place = ("unique_key", "topic", "queue_id", "queue_offset")
    seen = Counter(
        (one["machine"].partition("-")[0], one.get("broker"), *(one[part] for part in place))
        for one in truth["deliveries"]
    )  # fmt: skip
    return {record[2:] for record, times in seen.items() if times > 1}


def found_twice(findings: Findings) -> set[Delivered]:
    """Records that the audit says were delivered more than once to a group."""
    place = ("topic", "queue_id", "queue_offset")
    return {
        (one["message_id"], *(one["second"][part] for part in place))
        for one in findings if one["identity"] == "I1" and one["cause"] != "L9"
    }  # fmt: skip
