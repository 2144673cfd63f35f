"""``python tests/integration/prove_delay_kill.py``: delayed and retried messages while their broker is killed.

A broker process is killed with SIGKILL at random moments, now and then stopped cleanly, while messages wait for their
delay and failed ones for their next try. Nothing that was acknowledged is lost, nothing comes early, and what comes
twice was delivered before a kill and after progress was last written. Then the audit is asked: each repeat has a
finding B1 with both records.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from delay_kill import Told, stopped


def audited(directories: list[Path], told: list[Told]) -> tuple[int, int]:
    """(findings B1, repeats without one). Raises AssertionError for an unexpected cause of a message that repeated."""
    from dejamq_analytics import audit
    from dejamq_analytics.spark.session import make_session

    spark = make_session("local[2]", {"spark.driver.memory": "2g"}, quick=True)
    try:
        rows = []
        for directory in directories:
            rows += audit(spark, [str(directory / "journal")]).findings.where("stage = 'delay'").collect()
    finally:
        spark.stop()
    named = {row.message_id for row in rows if row.cause == "B1" and row.first and row.second}
    repeated = {key for one in told for key, _ in one.judged.repeated}
    return sum(row.cause == "B1" for row in rows), len(repeated - named)


def main() -> int:
    parser = argparse.ArgumentParser(description="A broker is killed while messages wait for their delay.")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--stops", type=int, default=12, help="of one run; every third is a clean one")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    began, told, directories = time.monotonic(), list[Told](), list[Path]()
    for seed in range(options.seed, options.seed + options.runs):
        directories.append(Path(tempfile.mkdtemp(prefix="delay-kill-")))
        try:
            told.append(asyncio.run(stopped(directories[-1], options.stops, seed)))
            told[-1].check()
        except (AssertionError, TimeoutError) as failure:
            print(f"\nFAILED: {failure!r}; seed {seed}, store and journals are in {directories[-1]}", file=sys.stderr)
            return 1
        print(f"\r{len(told)} of {options.runs} runs", end="", flush=True)
    findings, unnamed = audited(directories, told)
    acknowledged = sum(len(one.acknowledged) for one in told)
    waited, repeated = (
        sum(each) for each in zip(*((t.judged.waited, len(t.judged.repeated)) for t in told), strict=True)
    )
    clean = options.runs * ((options.stops + 1) // 3)
    kills = options.runs * options.stops - clean
    print(
        f"\n{kills} kills and {clean} clean restarts, seed {options.seed}, {time.monotonic() - began:.0f} s: of ",
        end="",
    )
    print(f"{acknowledged} acknowledged messages none was lost; {waited} waited for a delay, none came early, ", end="")
    print(f"{repeated} came again, all after a crash and since progress was last written; the audit names B1 ", end="")
    print(f"{findings} times, and leaves {unnamed} of the repeated messages without it")
    return 1 if unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
