"""``python tests/integration/prove_scale.py``: a broker with 500 topics of 4 queues and 200 groups.

It starts in less than 3 s, also after SIGKILL, answers routes and lags in less than 100 ms, and needs less than 300 MiB.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from scale import Told, scaled

START_S, ANSWER_MS, MEMORY_MIB = 3.0, 100.0, 300.0


def too_much(told: Told) -> list[str]:
    """What is above its limit. Times are of a machine that does nothing else; on a busy one look at the processor's."""
    found = []
    if max(told.start_s, told.start_after_kill_s) > START_S:
        found.append(f"a start takes more than {START_S} s")
    for name in ("route", "lag of a group"):
        if told.answers[name].at(0.99) > ANSWER_MS:
            found.append(f"{name}: more than {ANSWER_MS:.0f} ms")
    if told.resident_mib > MEMORY_MIB:
        found.append(f"more than {MEMORY_MIB:.0f} MiB")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="A broker with many topics and groups.")
    parser.add_argument("--topics", type=int, default=500)
    parser.add_argument("--groups", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as directory:
        told = asyncio.run(scaled(Path(directory), topics=options.topics, groups=options.groups))
    print("\n".join(told.lines()))
    for complaint in too_much(told):
        print(f"FAILED: {complaint}", file=sys.stderr)
    return 1 if too_much(told) else 0


if __name__ == "__main__":
    sys.exit(main())
