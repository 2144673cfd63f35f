"""``python tests/integration/prove_many.py``: 10,000 connections, 5,000 topics and 1,000 groups at one broker.

Half of the connections speak RocketMQ's remoting, a quarter gRPC of dejamq, a quarter gRPC of RocketMQ 5. It prints
what each connection, topic and group costs, and fails where a limit is passed: memory, the time of a restart, route
answers, and descriptors that stay when the connections have ended.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
from pathlib import Path

from many import Told, many

MEMORY_MIB, RESTART_S, ROUTE_MS, LEFT_OPEN = 400.0, 10.0, 10.0, 10
QUIET_S = 1.0
"""Where an empty broker takes longer to start, late answers say nothing about the servers, and the processor's time of
a restart is judged.
"""


def too_much(told: Told) -> list[str]:
    """What is above its limit."""
    found = []
    if told.highest_mib > MEMORY_MIB:
        found.append(f"the broker needs {told.highest_mib:.0f} MiB, more than {MEMORY_MIB:.0f}")
    quiet = told.empty_start_s <= QUIET_S
    if (told.restart_s if quiet else told.restart_cpu_s) > RESTART_S:
        found.append(f"a restart takes more than {RESTART_S:.0f} s")
    for name, answers in told.routes.items():
        if quiet and answers.at(0.99) > ROUTE_MS:
            found.append(f"routes by {name}: p99 {answers.at(0.99):.1f} ms, more than {ROUTE_MS:.0f}")
    left = told.descriptors["closed"] - told.descriptors["restarted"]
    if left > LEFT_OPEN:
        found.append(f"{left} descriptors stay open when all connections have ended")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--directory", type=Path, help="keep the store there, and use the one that is there")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    quarter = options.connections // 4
    connections = {"remoting": options.connections - 2 * quarter, "v1": quarter, "v2": quarter}
    needed = connections["remoting"] + quarter + 3 * quarter + 200  # the acceptor and gRPC hold three for one of v2
    if most < needed:
        parser.error(
            f"{options.connections} connections need {needed} descriptors of one process, ulimit -Hn is {most}"
        )
    with tempfile.TemporaryDirectory(prefix="many-") as name:
        directory = options.directory or Path(name)
        directory.mkdir(exist_ok=True)
        told = asyncio.run(many(directory, connections, options.topics, options.groups))
    print("\n".join(told.lines()))
    for complaint in too_much(told):
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if too_much(told) else 0


if __name__ == "__main__":
    sys.exit(main())
