"""``dejamq audit --follow``: what it refuses, what it prints, how it ends."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
from dejamq_proto.texts import printable

from dejamq_analytics.follow.follower import FollowPace
from dejamq_analytics.follow.run import Follow, Following, folders
from dejamq_analytics.run import Request, session_for
from dejamq_analytics.sources.paths import BadInput

INTERRUPTED = 130


def follow(request: Request, pace: FollowPace, as_json: bool) -> int:
    """Until Ctrl-C (130). Raises BadInput for what cannot be followed, and what taking a chunk failed with."""
    unfit = {"since": request.since, "group": request.group, "store": request.stores,
             "business-key": request.business_key}  # fmt: skip
    for name, given in unfit.items():
        if given:
            raise BadInput(f"--follow does not go with --{name}")
    if request.out is None:
        raise BadInput("--follow needs --out: the directory for the tables and the checkpoint to go on from")
    if min(pace) <= 0:
        raise BadInput("--delay and --window take more than 0 seconds")
    what = Following(folders(request.journals), request.out, pace)

    def tell(path: Path) -> None:
        for line in lines_of(path, as_json):
            print(line if as_json else printable(line), flush=True)

    with session_for(request, bounded=True) as session:
        try:
            with Follow(session, what, tell) as running:
                print(f"{running.run_id}: {request.out}, Ctrl-C ends it", file=sys.stderr, flush=True)
                running.forever()
        except KeyboardInterrupt:
            print(f"stopped; the same command goes on from {request.out / 'checkpoint'}", file=sys.stderr)
    return INTERRUPTED


def lines_of(table: Path, as_json: bool) -> Iterator[str]:
    """A line for each finding or anomaly of a table. Its times have microseconds, as ``datetime``, and are UTC."""
    for row in map(_in_utc, pyarrow.parquet.ParquetFile(table, coerce_int96_timestamp_unit="us").read().to_pylist()):
        yield msgspec.json.encode(row).decode() if as_json else _line(row)


def _in_utc(value: Any) -> Any:
    """Tables have their times in UTC, and do not say so."""
    if isinstance(value, dict):
        return {name: _in_utc(one) for name, one in value.items()}
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _line(row: dict[str, Any]) -> str:
    """One finding or anomaly on one line."""
    at = f"{row['time']:%Y-%m-%d %H:%M:%S}"
    if "anomaly_id" in row:
        return f"{at} {row['kind']} {row['consumer_group'] or '-'} {row['message_id'] or '-'}: {row['detail']}"
    why = row["trigger"] if row["cause"] else row["missing"]
    asked = " (asked for)" if row["expected"] else ""
    group = row["consumer_group"] or "-"
    return (
        f"{at} {row['cause'] or 'undetermined'}{asked} {group} {row['message_id'] or '-'} {row['kind']}: {why or '-'}"
    )
