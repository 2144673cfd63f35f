"""``python tests/unit/prove_pop_machine.py``: random histories, in thousands; every other one of a group in order."""

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))

from pop_machine import PopMachine
from pop_order_machine import OrderedPopMachine

MACHINES = (PopMachine, OrderedPopMachine)
MEMORY = Path("/dev/shm")
"""Nothing here loses power, and most of a history's time is a disk's."""
TOLD_EACH = 500


async def history(number: int, directory: Path, chance: random.Random, steps: int) -> None:
    await MACHINES[number % 2](directory, chance).run(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="Pop, crash, change, reset; and compare with a few lists.")
    parser.add_argument("--histories", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first one: a failure tells its own")
    parser.add_argument("--steps", type=int, default=40, help="of each history")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    logging.disable()
    print(f"seed {options.seed}")
    began = time.monotonic()
    for number in range(options.first, options.first + options.histories):
        directory = Path(tempfile.mkdtemp(prefix="pops-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            asyncio.run(history(number, directory, random.Random(f"{options.seed}-{number}"), options.steps))
        except AssertionError:
            print(f"history {number} failed")
            raise
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if (number + 1 - options.first) % TOLD_EACH == 0:
            print(f"{number + 1 - options.first} histories, {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{options.histories} histories of {options.steps} steps, {time.monotonic() - began:.0f} s: as the model says"
    )


if __name__ == "__main__":
    main()
