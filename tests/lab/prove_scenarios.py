"""Every scenario of the catalogue: the audit must name exactly what was done, and an inbox let no effect pass twice.

Part of ``make prove``; ``make trial`` is the same for many seeds and all levels, with the table of it.
python tests/lab/prove_scenarios.py --seeds 2 --directory build/scenarios [SCENARIO ...]
"""

import argparse
import sys
from pathlib import Path

from dejamq_lab.scenario.trial.command import main as trial_main


def main() -> int:
    """Exit status 1 when a scenario did not come to its end, or the audit said something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="by default all of them")
    parser.add_argument("--seeds", type=int, default=2, help="how often each is played")
    parser.add_argument("--jobs", type=int, default=2, help="how many are played side by side")
    parser.add_argument("--directory", type=Path, required=True, help="what was played there is not played again")
    options = parser.parse_args()
    told = ("--seeds", str(options.seeds), "--jobs", str(options.jobs), "--directory", str(options.directory))
    return trial_main([*options.scenarios, *told, "--modes", "forensic", "inbox"])


if __name__ == "__main__":
    sys.exit(main())
