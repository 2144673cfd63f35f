"""``python -m dejamq_analytics.chronicle [JOURNAL…] --out DIR``: an audit with what happened around its findings.

It takes the evidence that ``dejamq audit`` takes. Beside an audit's tables it writes ``chronicle/``: owners of queues,
offsets that brokers took, deliveries, faults, and of each line of evidence when it was and in which file it stands. The
console draws its pages from them. Exit status: 0 written, 2 bad use.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from dejamq_proto.journal.events import OffSet

from dejamq_analytics import options
from dejamq_analytics.evidence import sources
from dejamq_analytics.frames import DataFrame
from dejamq_analytics.frames import functions as sf
from dejamq_analytics.report.result import AuditResult
from dejamq_analytics.report.write import write_parquet
from dejamq_analytics.rules.anomalies import ownership
from dejamq_analytics.rules.history import faults, queues
from dejamq_analytics.run import BAD_USE, Request, run_audit
from dejamq_analytics.sources import line_numbers
from dejamq_analytics.sources.facts import Facts
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.spark.java import NoJava

FOLDER = "chronicle"
NICE = 5
"""An audit beside a broker that serves gives way to it."""
PLACES = pa.schema([("whose", pa.string()), ("seq", pa.int64()), ("source", pa.string()), ("within_us", pa.int64())])


def write_chronicle(out: Path, result: AuditResult, facts: Facts, request: Request) -> None:
    """One folder of Parquet a table. Times are microseconds of wall time."""
    lines = result.findings.select(sf.explode("evidence").alias("line")).select("line.*")
    tables = {
        "holdings": ownership.holdings(facts.events, facts.processes).drop("opened_seq"),
        "commits": _commits(facts.events),
        "deliveries": _deliveries(facts.deliveries),
        "faults": faults.begun(facts.events).select("wall_us", "process", "kind", "target"),
        "moments": _moments(facts.events, lines),
        "processes": facts.processes.select("process", "boot_id", "role", "first_wall_us", "last_wall_us"),
    }
    for name, table in tables.items():
        write_parquet(table, out / FOLDER / name)
    places = out / FOLDER / "places"
    places.mkdir()
    pa.parquet.write_table(_places(lines, request), places / "part-0.parquet")


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


def _moments(events: DataFrame, lines: DataFrame) -> DataFrame:
    """Of each line of evidence that is a line of a journal."""
    wanted = lines.select("boot_id", "seq").distinct()
    return events.select("boot_id", "seq", "wall_us").join(wanted, ["boot_id", "seq"], how="left_semi")


def _places(lines: DataFrame, request: Request) -> pa.Table:
    """Where each line of evidence stands: in a log, in a journal, or in a store. ``whose`` is a boot id, or a store.

    Times of logs may be coarse: ``within_us`` says by how much. Journals elsewhere are not looked into.
    """
    told = lines.select("process", "boot_id", "seq", "event").distinct().collect()
    wanted = {(line.boot_id, line.seq) for line in told if line.boot_id is not None}
    moments = sources.moments(request.made.sources, wanted) if request.made is not None else {}
    journals = line_numbers.places(request.journals, wanted - moments.keys())
    rows = [(*line, moment.source, moment.within_us) for line, moment in moments.items()]
    rows += [(*line, place, 0) for line, place in journals.items()]
    rows += [
        (line.process, line.seq, f"{line.process} log offset {line.seq}", 0)
        for line in told
        if line.boot_id is None and line.event == "RECORD"
    ]
    return pa.table([pa.array(column) for column in zip(*rows, strict=True)] or [[]] * len(PLACES), schema=PLACES)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dejamq_analytics.chronicle")
    parser.add_argument("journals", nargs="*", metavar="JOURNAL_DIR")
    options.add_options(parser)
    parser.add_argument("--business-key", metavar="PROPERTY")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments)
    os.nice(NICE)
    try:
        request = Request(
            given.journals, given.store, given.out, given.business_key, reading=options.reading_of(given),
            beside=write_chronicle,
        )  # fmt: skip
        run_audit(request, lambda text: None)
    except (BadInput, NoJava) as error:
        print(error, file=sys.stderr)
        return BAD_USE
    return 0


if __name__ == "__main__":
    sys.exit(main())
