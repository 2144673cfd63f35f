"""``python tests/integration/prove_churn.py``: a group in motion, with and without graceful hand-over.

Eight consumers join and leave fifty times over sixteen queues. With graceful hand-over nothing is lost and nothing
comes twice; without it nothing is lost, and each duplicate is found in the journals with both deliveries.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path

from churn import Told, churned

FORMS = [(graceful, ordered) for graceful in (True, False) for ordered in (False, True)]


async def prove(directory: Path, steps: int, seed: int) -> list[Told]:
    """One run of each form. Raises AssertionError."""
    told = []
    for number, (graceful, ordered) in enumerate(FORMS):
        one = await churned(directory / str(number), steps, seed, graceful=graceful, ordered=ordered)
        (one.check_graceful if graceful else one.check_told)()
        told.append(one)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description="Members of a group join and leave all the time.")
    parser.add_argument("--runs", type=int, default=10, help="of all four forms")
    parser.add_argument("--steps", type=int, default=50, help="members that join or leave in one run")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    began, told = time.monotonic(), list[Told]()
    for seed in range(options.seed, options.seed + options.runs):
        directory = Path(tempfile.mkdtemp(prefix="churn-"))
        try:
            told += asyncio.run(prove(directory, options.steps, seed))
        except (AssertionError, TimeoutError) as failure:
            print(f"\nFAILED: {failure!r}; seed {seed}, the journals are in {directory}", file=sys.stderr)
            return 1
        print(f"\r{len(told)} of {options.runs * len(FORMS)} runs", end="", flush=True)
    sent, steps, repeats = (
        sum(each) for each in zip(*((t.sent, t.steps, len(t.duplicates)) for t in told), strict=True)
    )
    print(f"\n{steps} members joined or left while {sent} messages were consumed, seed {options.seed}, ", end="")
    print(f"{time.monotonic() - began:.0f} s: nothing lost; with graceful hand-over nothing came twice, ", end="")
    print(f"without it {repeats} messages came again, each found with both deliveries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
