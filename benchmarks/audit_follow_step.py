"""``python benchmarks/audit_follow_step.py``: processor time of a step of ``dejamq audit --follow``, by what it keeps.

Journals of so many seconds are there already, at level ``forensic``. Then each step brings ``--step`` seconds more. A
tenth of messages comes again, for several causes. Times in the lines are made, so a long window takes no time.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from audit_journals import QUEUES, Clock, Writer
from dejamq_analytics.follow.follower import FollowPace
from dejamq_analytics.follow.run import Follow, Following
from dejamq_analytics.run import Request, session_for

TURN_S = 2.0
ENDLESS = 1 << 30
PACE = FollowPace(delay_us=20_000_000, window_us=900_000_000)


def main() -> int:
    options = _parsed()
    print("| seconds before | deliveries | first step, s | a step, s of processor | tables |\n|---|---|---|---|---|")
    for before_s in options.seconds:
        with tempfile.TemporaryDirectory(prefix="audit-follow-step-") as name:
            _measure(Path(name), before_s, options)
    return 0


def _measure(folder: Path, before_s: float, options: argparse.Namespace) -> None:
    journals, clock = folder / "journal", Clock(1e-6)
    journals.mkdir()
    writer, put = Writer(journals, 1, clock), list[Path]()
    runs = max(4, int(options.rate * TURN_S / QUEUES))
    turns = writer.turns(0, runs, max(1, runs // 10), ENDLESS)
    _grow(turns, clock, before_s)
    what = Following([journals], folder / "out", PACE)
    with (
        session_for(Request([str(journals)]), bounded=True) as session,
        Follow(session, what, put.append) as following,
    ):
        first_s = _step(following)
        while following.step(0):  # a chunk has room for so much
            first_s += _step(following)
        times = []
        for _ in range(options.rounds):
            _grow(turns, clock, options.step)
            times.append(_step(following))
    took_s = statistics.median(times)
    print(f"| {before_s:.0f} | {writer.delivered:,} | {first_s:.1f} | {took_s:.2f} | {len(put)} |", flush=True)


def _step(following: Follow) -> float:
    began_s = time.process_time()
    following.step(0)
    following.settle()
    return time.process_time() - began_s


def _grow(turns: Iterator[int], clock: Clock, seconds: float) -> None:
    for _ in range(int(seconds / TURN_S)):
        end_s = clock.now_s + TURN_S
        next(turns)
        clock.now_s = max(clock.now_s, end_s)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Processor time of a step of a following audit.")
    parser.add_argument("--seconds", type=float, nargs="+", default=(60, 240, 900), help="what is there before")
    parser.add_argument("--rate", type=int, default=200, help="deliveries a second")
    parser.add_argument("--step", type=float, default=4, help="seconds of traffic in a step")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
