"""``dejamq audit --follow``, killed again and again, tells what one audit of the whole tells, each thing once.

All histories of the audit's tests are written as processes would write them: in the order of their times, in pieces
that end anywhere in a line. Meanwhile the following audit is killed with SIGKILL at random moments and started again.
When everything is written and told, Ctrl-C ends it. Then its table must have exactly the findings of one audit.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import conftest  # noqa: F401  # all stories register themselves
import pyarrow.parquet
from stories import write_all

SAME = ("cause", "missing", "expected", "kind", "identity")
DELAY_S, DEADLINE_S, INTERRUPTED = 5, 1800, 130
Rows = dict[str, tuple[Any, ...]]


class Writer:
    """Writes journals out once more, in the order of their times, a random piece at a time."""

    def __init__(self, whole: Path, journal: Path, dice: random.Random) -> None:
        lines = [(json.loads(line)["wall_us"], path.name, line) for path in sorted(whole.glob("*.jsonl"))
                 for line in path.read_bytes().splitlines(keepends=True)]  # fmt: skip
        self._left = [(name, line) for _, name, line in sorted(lines, key=lambda each: each[0])]
        self._journal, self._dice, self._piece = journal, dice, len(self._left) // 20
        journal.mkdir()

    @property
    def done(self) -> bool:
        return not self._left

    def write(self) -> None:
        """Some lines, and a part of the one after them."""
        count = self._dice.randint(1, 2 * self._piece)
        now, self._left = self._left[:count], self._left[count:]
        for name, line in now:
            self._append(name, line)
        if self._left:
            name, line = self._left[0]
            cut = self._dice.randrange(len(line))
            self._append(name, line[:cut])
            self._left[0] = (name, line[cut:])

    def _append(self, name: str, data: bytes) -> None:
        with (self._journal / name).open("ab") as file:
            file.write(data)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "dejamq_analytics", *arguments]


def rows(out: Path) -> Rows:
    """By id. Raises AssertionError for an id that is there twice."""
    if not (out / "findings").exists():
        return {}
    table = pyarrow.parquet.read_table(out / "findings").to_pylist()
    found = {row["finding_id"]: tuple(row[name] for name in SAME) for row in table}
    assert len(found) == len(table), f"{len(table) - len(found)} findings were told twice"
    return found


def follow(journal: Path, out: Path) -> subprocess.Popen[bytes]:
    following = command(str(journal), "--out", str(out), "--follow", "--delay", str(DELAY_S))
    return subprocess.Popen(following, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(directory: Path, kills: int, dice: random.Random) -> None:
    whole, journal, out = directory / "whole", directory / "journal", directory / "out"
    whole.mkdir(parents=True)
    write_all(whole)
    subprocess.run(command(str(whole), "--out", str(directory / "once")), stdout=subprocess.DEVNULL, check=False)
    wanted = rows(directory / "once")
    assert wanted, "one audit of the whole found nothing"
    writer, left, until = Writer(whole, journal, dice), kills, time.monotonic() + DEADLINE_S
    writer.write()
    process = follow(journal, out)
    strike = time.monotonic() + dice.uniform(15, 90)
    while (left or not writer.done or len(rows(out)) < len(wanted)) and time.monotonic() < until:
        time.sleep(1)
        if dice.random() < 0.5:
            writer.write()
        if left and time.monotonic() > strike:
            process.kill()
            process.wait()
            left, strike = left - 1, time.monotonic() + dice.uniform(15, 90)
            process = follow(journal, out)
    process.send_signal(signal.SIGINT)
    status = process.wait(timeout=120)
    told = rows(out)
    print(f"{len(wanted)} findings in one audit, {len(told)} followed over {kills} kills, status {status} at the end")
    wrong = {key: (wanted.get(key), told.get(key)) for key in wanted.keys() | told.keys()
             if wanted.get(key) != told.get(key)}  # fmt: skip
    for pair in list(wrong.values())[:20]:
        print(*pair, sep="\n    ")
    assert not wrong, f"{len(wrong)} findings differ"
    assert status == INTERRUPTED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("build/follow"))
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    run(given.directory / f"seed-{given.seed}", given.kills, random.Random(given.seed))


if __name__ == "__main__":
    main()
