"""Less evidence never makes a verdict wrong: every recorded run of a real RocketMQ, with something taken away.

First each single loss: every file, machine, level of logs and part of the time. Then ``--random`` combinations of up to
three losses a run. An audit of the rest may leave causes open, and say less; what it says must be true.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from less_evidence import Loss, loss_of, random_loss, single_losses, wrong
from recorded import NAMES, RECORDED


def main() -> int:
    """Exit status 1 when an audit said something wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES, help="recorded runs, by default all")
    parser.add_argument("--random", type=int, default=10, metavar="N", help="combinations a run (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--no-single", action="store_true", help="combinations only")
    parser.add_argument("--without", action="append", metavar="LOSS", help="this one only, in the words of a report")
    options = parser.parse_args()
    if options.without:
        wrong_ones = [name for name in options.names if tell(name, [loss_of(one) for one in options.without])]
        return 1 if wrong_ones else 0
    print(f"seed {options.seed}", flush=True)
    counts: Counter[str] = Counter()
    for name in options.names:
        chance = random.Random(f"{name} {options.seed}")
        choices = [] if options.no_single else [[loss] for loss in single_losses(RECORDED / name)]
        choices += [
            [random_loss(RECORDED / name, chance) for _ in range(chance.randint(1, 3))] for _ in range(options.random)
        ]  # fmt: skip
        for losses in choices:
            counts["failures"] += tell(name, losses)
        counts["audits"] += len(choices)
        print(f"{name}: {len(choices)} audits", flush=True)
    print(f"{len(options.names)} runs, {counts['audits']} audits, {counts['failures']} said something wrong")
    return 1 if counts["failures"] else 0


def tell(name: str, losses: list[Loss]) -> bool:
    """Whether the audit without these says something wrong; it is printed."""
    with tempfile.TemporaryDirectory(prefix="dejamq-less-") as work:
        said = wrong(name, losses, Path(work))
    if said:
        print(f"  {name} without {' and '.join(loss.what for loss in losses)}: {'; '.join(said)}", flush=True)
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
