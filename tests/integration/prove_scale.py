"""``python tests/integration/prove_scale.py``: a broker with 500 topics of 4 queues and 200 groups.

It starts in less than 3 s, also after SIGKILL, answers routes and lags in less than 100 ms, and needs less than
300 MiB. Where an empty broker takes more than a second to start, the machine is too busy to tell by the clock, and the
processor's time is judged.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from scale import Told, scaled

START_S, ANSWER_MS, MEMORY_MIB = 3.0, 100.0, 300.0
QUIET_S = 1.0


def too_much(told: Told) -> list[str]:
    """What is above its limit."""
    found = []
    starts = told.start_s, told.start_after_kill_s
    if told.empty_start_s > QUIET_S:
        starts = told.start_cpu_s, told.start_after_kill_cpu_s
    if max(starts) > START_S:
        found.append(f"a start takes more than {START_S} s")
    for name in ("route", "lag of a group"):
        if told.answers[name].at(0.99) > ANSWER_MS:
            found.append(f"{name}: more than {ANSWER_MS:.0f} ms")
    if max(told.resident_mib, told.filled_mib) > MEMORY_MIB:
        found.append(f"more than {MEMORY_MIB:.0f} MiB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="A broker with many topics and groups.")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--messages", type=int, default=100, help="in each queue")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        told = asyncio.run(
            scaled(Path(name), topics=options.topics, groups=options.groups, messages=options.messages)
        )  # fmt: skip
    print("\n".join(told.lines()))
    for complaint in too_much(told):
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if too_much(told) else 0


if __name__ == "__main__":
    sys.exit(main())
