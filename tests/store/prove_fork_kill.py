"""``python tests/store/prove_fork_kill.py``: a hundred kills of a process that appends with SYNC_FLUSH."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fork_kill import Told, killed_again_and_again


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a process that appends, again and again, on one directory.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="of the moments of the kills")
    options = parser.parse_args()
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="fork-kill-"))

    def progress(told: Told) -> None:
        print(f"\r{told.kills} kills, {len(told.acknowledged)} messages acknowledged", end="", flush=True)

    try:
        told = killed_again_and_again(folder / "store", options.kills, options.seed, progress)
    except AssertionError as failure:
        print(f"\nFAILED: {failure}; seed {options.seed}, the files are in {folder}", file=sys.stderr)
        return 1
    print(
        f"\n{told.kills} kills, {told.kills_while_opening} before anything was acknowledged, seed {options.seed}, ",
        end="",
    )
    print(f"{time.monotonic() - began:.0f} s: nothing acknowledged is missing, nothing is there twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
