"""Options of a command line that name evidence, for every command that audits it."""

import argparse

from dejamq_analytics.evidence.text_lines import layout_of, offset_of
from dejamq_analytics.evidence.translate import Reading


def add_options(parser: argparse.ArgumentParser) -> None:
    """Where evidence is, and how it is read."""
    parser.add_argument("--store", action="append", default=[], metavar="DIR", help="a broker's store directory")
    parser.add_argument(
        "--logs", action="append", default=[], metavar="DIR", help="logs of RocketMQ's clients and servers"
    )
    parser.add_argument(
        "--trace", action="append", default=[], metavar="DIR", help="exported messages of its trace topic"
    )
    parser.add_argument(
        "--evidence", action="append", default=[], metavar="DIR",
        help="any of these, stores, offset files, and what dejamq collect wrote; --logs and --trace find all as well",
    )  # fmt: skip
    parser.add_argument(
        "--zone", action="append", default=[], metavar="[PART=]+HH:MM",
        help="time zone of logs, for paths with PART in them; by default a log tells it, or it is RocketMQ's +08:00",
    )  # fmt: skip
    parser.add_argument("--log-pattern", metavar="PATTERN", help="layout of an application's own log (logback, log4j)")
    parser.add_argument(
        "--trace-topic", action="append", default=[], metavar="TOPIC", help="of clients that have their own"
    )


def reading_of(given: argparse.Namespace) -> Reading | None:
    """None where there is no evidence but journals and stores. Raises BadInput."""
    folders = [*given.logs, *given.trace, *given.evidence]
    if not folders:
        return None
    zones = {}
    for zone in given.zone:
        part, _, offset = zone.rpartition("=")
        zones[part] = offset_of(offset)
    layout = layout_of(given.log_pattern) if given.log_pattern else None
    return Reading(folders, given.store, zones, layout, frozenset(given.trace_topic))
