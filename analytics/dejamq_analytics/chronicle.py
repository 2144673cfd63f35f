"""``python -m dejamq_analytics.chronicle JOURNAL… --out DIR``: an audit with what happened around its findings.

Beside an audit's tables it writes ``chronicle/``: owners of queues, offsets that brokers took, deliveries, faults, and
when each line of evidence was. The console draws its pages from them. Exit status: 0 written, 2 bad use.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from dejamq_proto.journal.events import OffSet

from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.report.result import AuditResult
from dejamq_analytics.report.write import write_parquet
from dejamq_analytics.rules.anomalies import ownership
from dejamq_analytics.rules.history import faults, queues
from dejamq_analytics.run import BAD_USE, Request, run_audit
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.spark.java import NoJava

FOLDER = "chronicle"
NICE = 5
"""An audit beside a broker that serves gives way to it."""


def write_chronicle(out: Path, result: AuditResult, facts: Facts) -> None:
    """One folder of Parquet a table. Times are microseconds of wall time."""
    tables = {
        "holdings": ownership.holdings(facts.events, facts.processes).drop("opened_seq"),
        "commits": _commits(facts.events),
        "deliveries": _deliveries(facts.deliveries),
        "faults": faults.begun(facts.events).select("wall_us", "process", "kind", "target"),
        "moments": _moments(facts.events, result.findings),
        "processes": facts.processes.select("process", "boot_id", "role", "first_wall_us", "last_wall_us"),
    }
    for name, table in tables.items():
        write_parquet(table, out / FOLDER / name)


def _commits(events: DataFrame) -> DataFrame:
    """Each change of a group's offset in a broker's table."""
    return queues.needs.of(events, OffSet).select(
        "wall_us", sf.col("group").alias("consumer_group"), "broker_name", "topic", "queue_id", "old", "new", "by",
        "client_id",
    )  # fmt: skip


def _deliveries(deliveries: DataFrame) -> DataFrame:
    return deliveries.select(
        "wall_us", "result_wall_us", "consumer_group", "broker_name", "topic", "queue_id", "queue_offset", "process",
        "result", "reconsume_times",
    )  # fmt: skip


def _moments(events: DataFrame, findings: DataFrame) -> DataFrame:
    """Of each line of evidence that is a line of a journal."""
    lines = findings.select(sf.explode("evidence").alias("line"))
    wanted = lines.select(sf.col("line.boot_id").alias("boot_id"), sf.col("line.seq").alias("seq")).distinct()
    return events.select("boot_id", "seq", "wall_us").join(wanted, ["boot_id", "seq"], how="left_semi")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dejamq_analytics.chronicle")
    parser.add_argument("journals", nargs="+", metavar="JOURNAL_DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments)
    os.nice(NICE)
    try:
        run_audit(Request(given.journals, out=given.out, beside=write_chronicle), lambda text: None)
    except (BadInput, NoJava) as error:
        print(error, file=sys.stderr)
        return BAD_USE
    return 0


if __name__ == "__main__":
    sys.exit(main())
