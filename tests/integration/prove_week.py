"""``python tests/integration/prove_week.py``: two weeks in the life of a broker, each in a minute.

The machine stands in Berlin. One week has the night that is an hour shorter (March), the other the night that is an
hour longer (October), and each ends a month. Messages are sent each quarter of an hour, log files roll and expire,
topics come and go with their offsets, messages wait for hours and days, the broker restarts each 30 hours. Nothing that
was acknowledged is lost within retention, everything older goes, and descriptors, memory and files stay flat.
"""

import argparse
import asyncio
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from week import Told, lived

WEEKS = {"March": datetime(2026, 3, 27, 12), "October": datetime(2026, 10, 24, 20)}
DAYS = 8
NIGHTS = {"CET", "CEST"}
SETTLED_DAYS = 5
"""From then on, each file that comes has one that goes."""
MORE_DESCRIPTORS, MORE_MIB, MORE_FILES = 4, 8.0, 12
"""What the last day may have more than the first settled one. Files of journals are of each start."""


def against(told: Told) -> list[str]:
    """What is not as it must be."""
    found = list(told.faults)
    if told.zones != NIGHTS:
        found.append(f"only {sorted(told.zones)} were lived through")
    first, last = told.days[SETTLED_DAYS - 1], told.days[-1]
    if last.descriptors > first.descriptors + MORE_DESCRIPTORS:
        found.append(f"descriptors grow from {first.descriptors} to {last.descriptors}")
    if last.own_mib > first.own_mib + MORE_MIB:
        found.append(f"memory grows from {first.own_mib} to {last.own_mib} MiB")
    if last.files > first.files + MORE_FILES:
        found.append(f"files grow from {first.files} to {last.files}")
    if not told.rotations:
        found.append("no journal was rotated")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weeks", nargs="*", choices=list(WEEKS), default=list(WEEKS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = False
    for name in options.weeks:
        with tempfile.TemporaryDirectory(prefix="week-") as directory:
            told = asyncio.run(lived(Path(directory), WEEKS[name], DAYS, seed=options.seed))
        print(f"{name}:", *told.lines(), sep="\n  ")
        for complaint in against(told):
            failed = True
            print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
