"""``python benchmarks/audit_follow.py``: how late ``dejamq audit --follow`` tells a finding, beyond its delay.

Journals grow at level ``forensic``. Every two seconds another consumer takes over, and some messages come again. The
time of a finding is from the second delivery's line to the printed line, less ``--delay``. Starting is left out.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
from audit_journals import QUEUES, Writer

TURN_S, STARTED_S = 2.0, 60
DEADLINE_S = 120
"""So long after the last finding none comes any more."""


def main() -> int:
    options = _parsed()
    runs = max(4, int(options.rate * TURN_S / QUEUES))
    with tempfile.TemporaryDirectory(prefix="audit-follow-") as name:
        journals = Path(name) / "journal"
        journals.mkdir()
        writer = Writer(journals, 1, time.time)
        following = _follow(journals, Path(name) / "out", options.delay)
        late: list[float] = []
        Thread(target=_hear, args=(following, options.delay, late), daemon=True).start()
        turns = int(options.seconds / TURN_S)
        for turn in writer.turns(0, runs, max(1, runs // 10), turns):
            if turn == int(STARTED_S / TURN_S):
                late.clear()
            time.sleep(TURN_S)
        told, heard_s = len(late), time.monotonic()
        while time.monotonic() < heard_s + DEADLINE_S:
            time.sleep(1)
            if len(late) > told:
                told, heard_s = len(late), time.monotonic()
        following.terminate()
        following.wait()
    print(
        f"{len(late)} findings of {writer.again + writer.asked_for} repeats, {options.rate} deliveries a second: "
        f"median {statistics.median(late):.1f} s, highest {max(late):.1f} s beyond the delay of {options.delay:.0f} s, "
        f"load {os.getloadavg()[0]:.1f}"
    )
    return 0


def _follow(journals: Path, out: Path, delay: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dejamq_analytics", str(journals), "--out", str(out), "--follow", "-o", "json"]
    return subprocess.Popen([*command, "--delay", str(delay)], stdout=subprocess.PIPE)


def _hear(following: subprocess.Popen[bytes], delay: float, late: list[float]) -> None:
    assert following.stdout is not None
    for line in following.stdout:
        told: dict[str, Any] = msgspec.json.decode(line)
        at = datetime.fromisoformat(told["time"])
        late.append(time.time() - at.timestamp() - delay)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How late a following audit tells a finding, beyond its delay.")
    parser.add_argument("--seconds", type=float, default=180, help="how long journals grow; the first 60 do not count")
    parser.add_argument("--rate", type=int, default=500, help="deliveries a second")
    parser.add_argument("--delay", type=float, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
