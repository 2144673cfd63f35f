"""Records what a real RocketMQ leaves behind when a cause strikes: ``python tests/rocketmq/record.py OUT [NAME…]``.

OUT gets a folder for each run of the lab's scenarios on a real RocketMQ, as ``tests/data/rocketmq/`` has them. NAME is
a scenario's (O1), with ``/java-4.9.8`` or ``/go`` behind it for another client. KEEP_WORK keeps all that a run wrote.
"""

import os
import shutil
import sys
import time
from pathlib import Path

from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.run import play
from dejamq_lab.rocketmq.scenario import recorded_name
from dejamq_lab.rocketmq.scenarios import SCENARIOS, chosen

OTHER_CLIENTS = ("O1/java-4.9.8", "O1/go", "O9/java-4.9.8")


def main(out: Path, names: list[str]) -> None:
    for name in names or [*SCENARIOS, *OTHER_CLIENTS]:
        scenario, _, word = name.partition("/")
        client = ClientProgram(word or ClientProgram.JAVA)
        recorded = recorded_name(scenario, client)
        print(time.strftime("%H:%M:%S"), recorded, flush=True)
        work = out / f"{recorded}.work" if "KEEP_WORK" in os.environ else None
        if work:
            shutil.rmtree(work, ignore_errors=True)
        play(chosen(scenario, client), out / recorded, lambda text: print("  ", text, flush=True), client, work=work)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
