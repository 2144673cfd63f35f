"""The result of an audit."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # pyspark only where an audit runs
    from dejamq_analytics.frames import DataFrame
    from dejamq_analytics.report.verdict import Verdict


class AuditResult(NamedTuple):
    """``findings`` and ``anomalies`` are frames with the documented columns, computed once and kept."""

    findings: "DataFrame"
    anomalies: "DataFrame"
    verdict: "Verdict"
