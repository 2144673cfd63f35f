"""``python -m dejamq_analytics JOURNAL_DIR… --out DIR``, and what ``dejamq audit`` runs.

Exit status: 0 clean, 1 findings, 2 bad use, 3 cannot tell, 130 Ctrl-C.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from dejamq_proto.standard_output import OutputFailed, run
from dejamq_proto.texts import printable

from dejamq_analytics import options
from dejamq_analytics.evidence.translate import translate
from dejamq_analytics.report.causes import CAUSES
from dejamq_analytics.report.explain import explained
from dejamq_analytics.report.tables import TableTarget
from dejamq_analytics.report.verdict import Verdict, advice
from dejamq_analytics.run import BAD_USE, CANNOT_TELL, CLEAN, FAIL_ON, Request, run_audit
from dejamq_analytics.sources.paths import BadInput
from dejamq_analytics.spark.java import NoJava


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.getLogger().addFilter(_not_py4j)
    try:
        if given.follow:
            from dejamq_analytics.follow.command import follow
            from dejamq_analytics.follow.follower import FollowPace

            pace = FollowPace(int(given.delay * 1e6), int(given.window * 1e6))
            return follow(_request(given), pace, given.output == "json")
        if given.explain_sources:
            return _explain(_request(given))
        status, verdict = run_audit(_request(given), lambda text: print(text, file=sys.stderr))
    except (BadInput, NoJava) as error:
        print(f"dejamq audit: {error}", file=sys.stderr)
        return BAD_USE
    except (BrokenPipeError, OutputFailed):  # of a following audit, whose tables hold what was told
        _nobody_reads()
        return CLEAN
    except OSError as error:
        print(f"dejamq audit: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return BAD_USE
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if (failed := _engine_error(error)) is None:
            raise
        print(f"dejamq audit: {failed}", file=sys.stderr)
        return CANNOT_TELL
    finally:
        logging.getLogger().removeFilter(_not_py4j)
    _tell(msgspec.json.encode(verdict).decode() if given.output == "json" else _summary(verdict))
    return status


def _tell(text: str) -> None:
    """On standard output; to nobody where its reader went away, as after ``| head``."""
    try:
        print("\n".join(map(printable, text.split("\n"))), flush=True)
    except (BrokenPipeError, OutputFailed):
        _nobody_reads()


def _nobody_reads() -> None:
    """The interpreter flushes standard output once more at its end, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _engine_error(error: Exception) -> str | None:
    """What failed in Spark or DuckDB, in one line; None for any other error. Neither is imported to be asked."""
    kinds = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__]
    lines = str(error).strip().splitlines()
    if "pyspark.PySparkException" in kinds or "py4j.Py4JError" in kinds:
        # py4j says first which of its calls it was, then what Java said
        of_java = "py4j.Py4JJavaError" in kinds and len(lines) > 1
        return f"Spark failed: {lines[1].removeprefix(': ') if of_java else lines[0]}"
    if "_duckdb.Error" in kinds or "duckdb.Error" in kinds:
        return f"DuckDB failed: {lines[0]}"
    return None


def _not_py4j(record: logging.LogRecord) -> bool:
    """py4j tells the root logger, with a traceback, of each call that Ctrl-C interrupts; what failed is raised too."""
    return Path(record.pathname).parent.name != "py4j"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dejamq audit",
        description="Why was it delivered twice? Reads the journals of all processes and names the cause of each "
        "duplicate, with the lines that prove it.",
        epilog="Exit status: 0 clean, 1 findings, 2 bad use, 3 cannot tell, 130 Ctrl-C.",
    )
    parser.add_argument("journals", nargs="*", metavar="JOURNAL_DIR", help="default: DEJAMQ_JOURNAL_DIR")
    options.add_options(parser)
    parser.add_argument(
        "--explain-sources", action="store_true", help="audit nothing: say what was found, and what each cause needs"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="writes verdict.json, findings/, anomalies/, report.html"
    )
    parser.add_argument(
        "--since", metavar="RUN", help="tell only what RUN (a run id of --out, or last) and those before it have not"
    )
    parser.add_argument(
        "--write-format", metavar="FORMAT", help="of the tables: delta, iceberg, or another one of Spark's"
    )
    parser.add_argument("--write-path", metavar="PATH", help="appends to PATH/findings and PATH/anomalies what is new")
    parser.add_argument("--write-table", metavar="NAME", help="the same for tables NAME_findings and NAME_anomalies")
    parser.add_argument("--write-option", action="append", default=[], metavar="K=V", help="an option of the format")
    parser.add_argument("--follow", action="store_true", help="go on with the journals as they grow, until Ctrl-C")
    parser.add_argument(
        "--delay", type=float, default=60, metavar="SECONDS", help="with --follow: how long lines may come late (60)"
    )
    parser.add_argument(
        "--window", type=float, default=900, metavar="SECONDS", help="with --follow: how far back it remembers (900)"
    )
    parser.add_argument("--group", help="audit one consumer group only")
    parser.add_argument("--business-key", metavar="PROPERTY", help="messages with the same value are the same business")
    parser.add_argument(
        "--engine", choices=("auto", "spark", "duckdb"), default="auto",
        help="duckdb for small local journals, Spark for others: auto (the default) chooses",
    )  # fmt: skip
    parser.add_argument("--master", metavar="URL", help="the Spark master, default local[*]")
    parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="a Spark setting")
    parser.add_argument(
        "--fail-on", default=",".join(FAIL_ON), metavar="LIST", help=f"of {','.join(FAIL_ON)}, or never"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _request(given: argparse.Namespace) -> Request:
    default = os.environ.get("DEJAMQ_JOURNAL_DIR")
    fail_on = () if given.fail_on == "never" else tuple(given.fail_on.split(","))
    for name in fail_on:
        if name not in FAIL_ON:
            raise BadInput(f"--fail-on takes {', '.join(FAIL_ON)} or never, not {name!r}")
    reading = options.reading_of(given)
    if given.follow and reading is not None:
        raise BadInput("--follow is about journals: leave it out where there are logs")
    return Request(
        journals=given.journals or ([default] if default and reading is None else []),
        reading=reading,
        stores=given.store,
        out=given.out,
        business_key=given.business_key,
        group=given.group,
        engine=given.engine,
        master=given.master,
        conf=_pairs("--conf", given.conf),
        fail_on=fail_on,
        since=given.since,
        target=_target(given),
    )


def _pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    parts = [entry.partition("=") for entry in entries]
    for key, equals, _ in parts:
        if not (key and equals):
            raise BadInput(f"{option} takes KEY=VALUE, not {key!r}")
    return {key: value for key, _, value in parts}


def _target(given: argparse.Namespace) -> TableTarget | None:
    """None where no table is written. Raises BadInput."""
    of_format = _pairs("--write-option", given.write_option)
    if not (given.write_format or given.write_path or given.write_table or of_format):
        return None
    if given.follow:
        raise BadInput("--follow writes Parquet only: leave --write-… out, or audit again and again with --since")
    target = TableTarget(given.write_format, given.write_path, given.write_table, of_format)
    target.check()
    return target


def _explain(request: Request) -> int:
    """For each cause the evidence that it needs, and whether it is there."""
    if request.reading is None:
        raise BadInput("--explain-sources is about --logs, --trace and --evidence: name one of them")
    with TemporaryDirectory(prefix="dejamq-audit-") as folder:
        made = translate(request.reading, Path(folder))
    _tell("\n".join([*made.said, "", *explained(made.kinds)]))
    return 0


def _summary(verdict: Verdict) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in verdict.causes.items())
    lines = [
        f"{verdict.verdict}: {verdict.messages} messages, {verdict.deliveries} deliveries, "
        f"{verdict.duplicates} duplicates" + (f" ({causes})" if causes else ""),
        f"undetermined {verdict.undetermined}, asked for {verdict.expected_duplicates}, lost {verdict.lost}, "
        f"unseen {verdict.unseen}, out of order {verdict.out_of_order}, journal gaps {verdict.journal_gaps}",
    ]
    if verdict.unfinished_first:
        lines.append(f"  the first handler had not ended: {verdict.unfinished_first} of these duplicates")
    lines += [f"  {cause}: {CAUSES[cause].title}" for cause in verdict.causes if cause in CAUSES]
    lines += [f"  {count} undetermined: {missing}" for missing, count in verdict.undetermined_missing.items()]
    if told := advice(verdict.undetermined_missing):
        lines.append(f"  {told}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(run("dejamq audit", main))
