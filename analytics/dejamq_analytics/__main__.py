"""``python -m dejamq_analytics JOURNAL_DIR… --out DIR``, and what ``dejamq audit`` runs.

Exit status: 0 clean, 1 findings, 2 bad use, 3 cannot tell, 130 Ctrl-C.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it ships no types
from pyspark.errors import PySparkException

from dejamq_analytics.causes import CAUSES
from dejamq_analytics.follow.command import follow
from dejamq_analytics.follow.follower import Pace
from dejamq_analytics.java import NoJava
from dejamq_analytics.read import BadInput
from dejamq_analytics.run import BAD_USE, CANNOT_TELL, FAIL_ON, Request, run_audit
from dejamq_analytics.verdict import Verdict, advice


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.getLogger().addFilter(_not_py4j)
    try:
        if given.follow:
            pace = Pace(int(given.delay * 1e6), int(given.window * 1e6))
            return follow(_request(given), pace, given.output == "json")
        status, verdict = run_audit(_request(given), lambda text: print(text, file=sys.stderr))
    except (BadInput, NoJava) as error:
        print(f"dejamq audit: {error}", file=sys.stderr)
        return BAD_USE
    except OSError as error:
        print(f"dejamq audit: {error.strerror or error}: {error.filename or ''}".rstrip(": "), file=sys.stderr)
        return BAD_USE
    except (PySparkException, Py4JError) as error:
        print(f"dejamq audit: Spark failed: {_reason(error)}", file=sys.stderr)
        return CANNOT_TELL
    except KeyboardInterrupt:
        return 130
    finally:
        logging.getLogger().removeFilter(_not_py4j)
    print(msgspec.json.encode(verdict).decode() if given.output == "json" else _summary(verdict))
    return status


def _reason(error: Exception) -> str:
    """In one line; where py4j says first which of its calls it was, what Java said then."""
    lines = str(error).strip().splitlines()
    of_java = isinstance(error, Py4JJavaError) and len(lines) > 1
    return lines[1].removeprefix(": ") if of_java else lines[0]


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
    parser.add_argument("--store", action="append", default=[], metavar="DIR", help="a broker's store directory")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="writes verdict.json, findings/, anomalies/, report.html"
    )
    parser.add_argument(
        "--since", metavar="RUN", help="tell only what RUN (a run id of --out, or last) and those before it have not"
    )
    parser.add_argument("--follow", action="store_true", help="go on with the journals as they grow, until Ctrl-C")
    parser.add_argument(
        "--delay", type=float, default=60, metavar="SECONDS", help="with --follow: how long lines may come late (60)"
    )
    parser.add_argument(
        "--window", type=float, default=900, metavar="SECONDS", help="with --follow: how far back it remembers (900)"
    )
    parser.add_argument("--group", help="audit one consumer group only")
    parser.add_argument("--business-key", metavar="PROPERTY", help="messages with the same value are the same business")
    parser.add_argument("--master", metavar="URL", help="the Spark master, default local[*]")
    parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="a Spark setting")
    parser.add_argument(
        "--fail-on", default=",".join(FAIL_ON), metavar="LIST", help=f"of {','.join(FAIL_ON)}, or never"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _request(given: argparse.Namespace) -> Request:
    default = os.environ.get("DEJAMQ_JOURNAL_DIR")
    conf = [entry.partition("=") for entry in given.conf]
    fail_on = () if given.fail_on == "never" else tuple(given.fail_on.split(","))
    for key, equals, _ in conf:
        if not (key and equals):
            raise BadInput(f"--conf takes KEY=VALUE, not {key!r}")
    for name in fail_on:
        if name not in FAIL_ON:
            raise BadInput(f"--fail-on takes {', '.join(FAIL_ON)} or never, not {name!r}")
    return Request(
        journals=given.journals or ([default] if default else []),
        stores=given.store,
        out=given.out,
        business_key=given.business_key,
        group=given.group,
        master=given.master,
        conf={key: value for key, _, value in conf},
        fail_on=fail_on,
        since=given.since,
    )


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
    sys.exit(main())
