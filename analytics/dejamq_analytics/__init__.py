"""The audit of dejamq: which messages were delivered or stored twice, and why, from the journals of all processes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dejamq_analytics.verdict import Verdict

__all__ = ["AuditResult", "audit"]


class AuditResult(NamedTuple):
    """``findings`` and ``anomalies`` are frames with the documented columns, computed once and kept."""

    findings: "DataFrame"
    anomalies: "DataFrame"
    verdict: "Verdict"


def audit(
    spark: "SparkSession",
    journals: Sequence[str],
    stores: Sequence[str] = (),
    business_key: str | None = None,
    *,
    group: str | None = None,
    run_id: str | None = None,
) -> AuditResult:
    """Find and explain every duplicate. ``journals`` and ``stores`` are directories (or URIs of such).

    ``business_key`` names the message property that makes two messages the same to the application; ``group`` limits
    the audit to one consumer group. ``stores`` without journals are audited as far as commit logs can tell (the
    verdict's ``scope``). Raises BadInput (a ValueError) when there is nothing to audit.
    """
    from dejamq_analytics import log_audit  # pyspark only where an audit runs
    from dejamq_analytics.pipeline import gather
    from dejamq_analytics.run import conclude
    from dejamq_analytics.session import for_journals

    if stores and not journals:
        places = [str(store) for store in stores]
        return log_audit.conclude(log_audit.gather(spark, places, business_key), places, run_id)
    with for_journals(spark, stores):
        facts = gather(spark, [str(one) for one in journals], [str(one) for one in stores], business_key, group)
        return conclude(facts, run_id)
