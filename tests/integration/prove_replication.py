"""``python tests/integration/prove_replication.py``: masters and slaves that suffer, each life from its own seed.

First: links, processes and disks fail at random moments, and after every fault a slave is its master's copy. Then: with
SYNC_MASTER and SYNC_FLUSH the master's machine dies, and its slave has every message that was answered with SEND_OK.

``--automatic``: instead, the master of a pair is killed or frozen in each life, and its slave takes over by itself.
"""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "store"))

from failover_lives import outlived_by_itself
from replication_faults import FAULTS, suffered
from replication_power import outlived


def main() -> int:
    parser = argparse.ArgumentParser(description="Replication under faults.", allow_abbrev=False)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--faults", type=int, default=6, help="in one life")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000, help="the first one")
    parser.add_argument("--automatic", action="store_true", help="fail-over by itself, so many lives in one cluster")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began, messages, wrecks = time.monotonic(), 0, 0
    directory = Path(tempfile.mkdtemp(prefix="replication-"))
    if options.automatic:
        return automatic(directory, options.seed, options.seeds)
    for seed in range(options.seed, options.seed + options.seeds):
        faults = random.Random(seed).choices(list(FAULTS), k=options.faults)
        try:
            messages += asyncio.run(suffered(directory / str(seed), seed, faults))
            wrecks += asyncio.run(outlived(directory / f"{seed}-power", seed))
        except AssertionError as failure:
            print(f"\nFAILED: {failure}", file=sys.stderr)
            return 1
        shutil.rmtree(directory)
        print(f"\r{seed - options.seed + 1} of {options.seeds} lives", end="", flush=True)
    took = time.monotonic() - began
    print(f"\n{options.seeds * options.faults} faults, {messages} answered messages, {wrecks} power losses of a master")
    print(
        f"with SYNC_MASTER and SYNC_FLUSH, seeds from {options.seed}, {took:.0f} s: nothing lost, every copy the same"
    )
    return 0


def automatic(directory: Path, seed: int, lives: int) -> int:
    """Exit status."""
    began = time.monotonic()
    try:
        messages, waits_s = asyncio.run(outlived_by_itself(directory, seed, lives))
    except AssertionError as failure:
        print(f"FAILED: {failure}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    print(
        f"{lives} masters killed or frozen, {messages} messages answered with SEND_OK, seed {seed}, "
        f"{time.monotonic() - began:.0f} s: nothing lost at either replica; "
        f"the longest recovery took {max(waits_s):.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
