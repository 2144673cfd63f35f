"""``python tests/integration/prove_chaos.py --minutes 60``: a cluster with fail-over under faults of every kind.

Two name servers, two masters with a slave each, a producer and two consumers, all of them processes. Kills, stops, cut
and half-open links, full disks and clocks that jump strike at random. After each fault new messages are consumed in a
minute. Each history is audited: nothing acknowledged is lost, and every duplicate has a cause. What fails is kept as a
scenario, with fewer faults if ``--reduce`` has time for that.
"""

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from dejamq_lab.explore.chaos import chaos
from dejamq_lab.explore.hunt import HuntOptions, hunt


def main() -> int:
    parser = argparse.ArgumentParser(description="Chaos on a cluster with fail-over.", allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60, help="no world begins later")
    parser.add_argument("--faults", type=int, default=10, help="in one world")
    parser.add_argument("--at-once", type=int, default=3, help="worlds between two audits")
    parser.add_argument("--reduce", type=int, default=0, help="at most so many replays of a failing world")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    parser.add_argument("--directory", type=Path, help="keep everything there")
    options = parser.parse_args()
    began, directory = time.monotonic(), options.directory or Path(tempfile.mkdtemp(prefix="chaos-"))

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)

    tell(f"seed {options.seed}, in {directory}")
    found = hunt(
        HuntOptions(
            options.seed, options.minutes, directory, directory / "found", at_once=options.at_once,
            make=partial(chaos, units=options.faults), most_replays=options.reduce,
        ),
        tell,
    )  # fmt: skip
    for one in found.found:
        print(f"FAILED: {'; '.join(one.problems)}; see {one.path}", file=sys.stderr)
    print(
        f"{found.played} worlds, {found.played * options.faults} faults, seed {options.seed}, "
        f"{(time.monotonic() - began) / 60:.0f} min: {len(found.found)} failed"
    )
    return 1 if found.found else 0


if __name__ == "__main__":
    sys.exit(main())
