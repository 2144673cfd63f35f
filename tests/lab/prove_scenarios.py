"""Every scenario of the catalogue, several times: the audit must name exactly what was done. Part of ``make prove``.

python tests/lab/prove_scenarios.py --seeds 2 --directory build/scenarios [SCENARIO ...]
"""

import argparse
import sys
from pathlib import Path

from dejamq_lab.scenario.text import catalogue
from dejamq_lab.scenario.trial import trial


def main() -> int:
    """Exit status 1 when a scenario did not come to its end, or the audit said something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help="by default all of them")
    parser.add_argument("--seeds", type=int, default=2, help="how often each is played")
    parser.add_argument("--directory", type=Path, required=True, help="what was played there is not played again")
    options = parser.parse_args()
    known = catalogue()
    chosen = [known[name] for name in options.scenarios or known]
    failed = 0
    for outcome in trial(chosen, range(1, options.seeds + 1), options.directory, print):
        failed += not outcome.ok
        causes = {**outcome.verdict.get("causes", {}), "lost": outcome.verdict.get("lost", 0)}
        print(outcome.scenario, "ok" if outcome.ok else "; ".join(outcome.problems), causes, outcome.directory)
    print(f"{failed} of {len(chosen) * options.seeds} runs went wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
