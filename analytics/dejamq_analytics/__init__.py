"""The audit of dejamq: which messages were delivered or stored twice, and why, from the journals of all processes.

A program owns the Spark session and calls ``audit``. Enter at ``pipeline``.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dejamq_analytics.report.result import AuditResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditResult", "append_findings", "audit"]


def audit(
    spark: "SparkSession",
    journals: Sequence[str],
    stores: Sequence[str] = (),
    business_key: str | None = None,
    *,
    group: str | None = None,
    run_id: str | None = None,
) -> AuditResult:
    """Find and explain every duplicate. ``journals`` and ``stores`` are directories (or URIs of such). In place of a
    Spark session a ``duck.session.DuckSession`` audits small local journals sooner, with the same findings.

    ``business_key`` names the message property that makes two messages the same to the application; ``group`` limits
    the audit to one consumer group. ``stores`` without journals are audited as far as commit logs can tell (the
    verdict's ``scope``). Raises BadInput (a ValueError) when there is nothing to audit.
    """
    from dejamq_analytics import log_audit
    from dejamq_analytics.frames import SPARK, using
    from dejamq_analytics.pipeline import gather, surveyed
    from dejamq_analytics.run import conclude, settings_for

    with using(getattr(spark, "engine", SPARK)), settings_for(spark, stores):
        if stores and not journals:
            places = [str(store) for store in stores]
            return log_audit.conclude(log_audit.gather(spark, places, business_key), places, run_id)
        places, logs = [str(one) for one in journals], [str(one) for one in stores]
        facts = gather(spark, places, logs, business_key, group, surveyed(spark, places, logs, group))
        return conclude(facts, run_id)


def append_findings(
    result: AuditResult,
    *,
    format: str | None = None,
    path: str | None = None,
    table: str | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Append findings and anomalies to tables of any Spark format: ``path``/findings, or the table ``table``_findings.

    What a table has in the same words is left out, so that a second call appends nothing. Gives the number of new rows
    by table. ``format`` is Spark's name (``delta``, ``iceberg``); a path is Parquet without one. Raises BadInput (a
    ValueError) for an audit by DuckDB, and unless just one of ``path`` and ``table`` is given.
    """
    from dejamq_analytics.report.tables import TableTarget, append

    return append(result, TableTarget(format, path, table, options or {}))
