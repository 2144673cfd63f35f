"""``dejamq audit --follow``: what it refuses, what it prints, how it ends."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet

from dejamq_analytics.follow.follower import Pace
from dejamq_analytics.follow.run import Follow, Following, folders
from dejamq_analytics.read import BadInput
from dejamq_analytics.run import CANNOT_TELL, Request, session_for

INTERRUPTED = 130


def follow(request: Request, pace: Pace, as_json: bool) -> int:
    """Until Ctrl-C (130), or until the query ends (3). Raises BadInput for what cannot be followed."""
    for name, given in (("--since", request.since), ("--group", request.group), ("--store", request.stores)):
        if given:
            raise BadInput(f"--follow does not go with {name}")
    if request.out is None:
        raise BadInput("--follow needs --out: the directory for the tables and the checkpoint to go on from")
    if min(pace) <= 0:
        raise BadInput("--delay and --window take more than 0 seconds")
    what = Following(folders(request.journals), request.out, pace)

    def tell(path: Path) -> None:
        for row in pyarrow.parquet.ParquetFile(path).read().to_pylist():
            print(msgspec.json.encode(row).decode() if as_json else _line(row), flush=True)

    with session_for(request) as spark:
        try:
            with Follow(spark, what, tell) as running:
                print(f"{running.run_id}: {request.out}, Ctrl-C ends it", file=sys.stderr, flush=True)
                running.forever()
        except KeyboardInterrupt:
            print(f"stopped; the same command goes on from {request.out / 'checkpoint'}", file=sys.stderr)
            return INTERRUPTED
    return CANNOT_TELL


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
