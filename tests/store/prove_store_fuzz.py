"""``python tests/store/prove_store_fuzz.py``: stores with random damage, opened one after the other."""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzzing import spoiled, survives


def main() -> int:
    parser = argparse.ArgumentParser(description="Open stores with random damage: each must open, or say why not.")
    parser.add_argument("--stores", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="of the first store")
    options = parser.parse_args()
    logging.disable()
    began, ends = time.monotonic(), Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="store-fuzz-"))
    for seed in range(options.seed, options.seed + options.stores):
        directory = spoiled(folder, seed)
        try:
            ends[survives(directory)] += 1
        except Exception as error:
            again = f"python tests/store/prove_store_fuzz.py --seed {seed} --stores 1"
            print(f"\nFAILED: {error!r}; again with: {again}", file=sys.stderr)
            raise
        shutil.rmtree(directory)
        print(f"\r{ends.total()} stores", end="", flush=True)
    print()
    for end, count in ends.most_common():
        print(f"{count:6} {end}")
    print(f"{ends.total()} stores from seed {options.seed} on, {time.monotonic() - began:.0f} s: each had an answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
