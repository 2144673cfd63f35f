"""Scenarios on a real RocketMQ, one after the other: the audit must name what was done. Part of ``make prove``.

python tests/rocketmq/prove_lab.py --directory build/rocketmq-scenarios [SCENARIO[/CLIENT] ...]
"""

import argparse
import sys
from pathlib import Path

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.machines.jars import Missing
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.run import run
from dejamq_lab.rocketmq.scenario import recorded_name
from dejamq_lab.rocketmq.scenarios import SCENARIOS, chosen

EVERY = [f"{one.id}/{client}" for one in SCENARIOS.values() for client in one.clients]


def main() -> int:
    """Exit status 1 when a scenario did not come to its end, or the audit said something else.

    What this machine cannot play is left out.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=EVERY, help="by default all, with every client that can")
    parser.add_argument("--directory", type=Path, required=True, help="where the evidence and the reports are kept")
    options = parser.parse_args()
    failed = 0
    for name in options.scenarios:
        scenario, _, word = name.partition("/")
        client = ClientProgram(word or ClientProgram.JAVA)
        directory = options.directory / recorded_name(scenario, client)
        try:
            outcome = run(chosen(scenario, client), directory, lambda text: None, client)
            said = "ok" if outcome.ok else "; ".join(outcome.problems)
            failed += not outcome.ok
        except ClusterFailed as error:
            said, failed = str(error), failed + 1
        except Missing as error:
            said = f"left out: {error}"
        print(f"{scenario} {client}: {said}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
