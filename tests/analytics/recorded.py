"""Recorded runs of a real RocketMQ, what is true of each, and an audit of one."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from dejamq_analytics.evidence.translate import Reading
from dejamq_analytics.report.verdict import Verdict
from dejamq_analytics.run import Request, run_audit
from dejamq_lab.rocketmq.truth import Truth

RECORDED = Path(__file__).parents[1] / "data" / "rocketmq"
NAMES = sorted(run.parent.name for run in RECORDED.glob("*/truth.json"))
Findings = list[dict[str, Any]]


def audited(folder: Path, out: Path) -> tuple[Verdict, Findings]:
    """The verdict on a recorded run, and its findings."""
    _, verdict = run_audit(Request([], out=out, reading=Reading([str(folder)]), engine="duckdb"), lambda text: None)
    return verdict, [row for part in out.rglob("findings/*/*.parquet") for row in pq.read_table(part).to_pylist()]


def truth_of(name: str) -> Truth:
    return Truth(RECORDED / name)


def causes_of(truth: Truth, finding: dict[str, Any]) -> list[str]:
    """The causes that this message's duplicates may have. The message is one that some handler was given."""
    assert finding["message_id"] in {one["unique_key"] for one in truth.deliveries}, finding
    return truth.causes_of(finding)
