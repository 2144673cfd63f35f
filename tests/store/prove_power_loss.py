"""``python tests/store/prove_power_loss.py``: at least so many power losses at random steps, each step kind counted."""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from power_loss import Failure, lineage
from power_loss_threads import threaded_life


def main() -> int:
    parser = argparse.ArgumentParser(description="Crash the store at random steps, as a power loss would.")
    parser.add_argument("--points", type=int, default=1000, help="crash points at least")
    parser.add_argument("--lineages", type=int, default=1 << 30, help="lineages at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="of the first lineage")
    parser.add_argument("--no-threads", action="store_true", help="only what the seed brings back exactly")
    options = parser.parse_args()
    logging.disable()
    began, seen, seed = time.monotonic(), Counter[str](), options.seed
    while seen.total() < options.points and seed < options.seed + options.lineages:
        folder = Path(tempfile.mkdtemp(prefix="power-loss-"))
        try:
            seen += lineage(seed, folder / "lineage")
            if not options.no_threads:
                seen += threaded_life(seed, folder / "threads")
        except Failure as failure:
            print(f"\nFAILED after {seen.total()} power losses: {failure}", file=sys.stderr)
            return 1
        except BaseException:
            print(f"\nlineage {seed} broke off; its files are in {folder}", file=sys.stderr)
            raise
        shutil.rmtree(folder)
        seed += 1
        print(f"\r{seen.total()} power losses, lineage {seed - options.seed}", end="", flush=True)
    print()
    for kind, count in sorted(seen.items()):
        print(f"{count:6} {kind}")
    print(
        f"{seen.total()} power losses, seeds {options.seed} to {seed - 1}, {time.monotonic() - began:.0f} s: all whole"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
