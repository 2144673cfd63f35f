"""Grades the audit on recorded runs of a real RocketMQ, by how much evidence it has, and writes docs/attribution.md.

``python tools/recorded_table.py`` audits every run of ``tests/data/rocketmq`` three times: its stores alone, with the
trace topic, and with logs. ``--check`` says whether the committed table is of today's runs, and audits nothing.
"""

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from dejamq_analytics.evidence.translate import Reading
from dejamq_analytics.run import Request, run_audit
from dejamq_lab.rocketmq.truth import right_for

HOUSE = Path(__file__).parents[1]
PAGE, RECORDED = HOUSE / "docs" / "attribution.md", HOUSE / "tests" / "data" / "rocketmq"
BEGIN, END = "<!-- begin: made by `make recorded` -->", "<!-- end: recorded -->"
LEVELS = ("stores", "trace", "logs")
Finding = dict[str, Any]


class Run(NamedTuple):
    """One recorded run, and the causes that each message's duplicates may have, ``*`` for all others."""

    folder: Path
    causes: Mapping[str, Sequence[str]]
    keys: Mapping[str, str]

    @property
    def has(self) -> set[str]:
        return {cause for causes in self.causes.values() for cause in causes}

    def may_be(self, finding: Finding) -> Sequence[str]:
        return right_for(self.causes.get(self.keys.get(finding["message_id"], ""), self.causes.get("*", ())))


@dataclass
class Score:
    """Of one cause at one level of evidence: how many runs have it, in how many it was named, and how often."""

    runs: int = 0
    found: int = 0
    named: int = 0
    rightly: int = 0
    possible: int = 0
    """Runs in which it was not named, and a finding that was left open speaks of it."""


@dataclass
class Level:
    """All causes at one level."""

    scores: dict[str, Score] = field(default_factory=dict)
    controls: int = 0
    clean: int = 0

    def of(self, cause: str) -> Score:
        return self.scores.setdefault(cause, Score())


def recorded() -> list[Run]:
    """All runs, in the order of their names."""
    found = []
    for file in sorted(RECORDED.glob("*/truth.json")):
        truth = json.loads(file.read_text())
        keys = {one["unique_key"]: one["key"] for one in truth["deliveries"]}
        found.append(Run(file.parent, truth["causes"], keys))
    return found


def findings_of(run: Run, level: str, work: Path) -> list[Finding]:
    """What an audit with that much evidence finds."""
    kept = work / "run"
    without = {"stores": ("*.log", "snapshots"), "trace": ("*.log", "snapshots"), "logs": ()}[level]
    shutil.copytree(run.folder, kept, ignore=shutil.ignore_patterns(*without))
    stores = [str(log.parent) for log in sorted(kept.rglob("commitlog"))]
    reading = None if level == "stores" else Reading([str(kept)])
    request = Request([], stores=stores, out=work / "out", reading=reading, engine="duckdb", fail_on=())
    run_audit(request, lambda text: None)
    parts = (work / "out").rglob("findings/*/*.parquet")
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def grade(runs: Iterable[Run]) -> dict[str, Level]:
    """Every run at every level."""
    levels = {name: Level() for name in LEVELS}
    for run in runs:
        for name, level in levels.items():
            with tempfile.TemporaryDirectory(prefix="dejamq-recorded-") as work:
                mark(run, findings_of(run, name, Path(work)), level)
    return levels


def mark(run: Run, findings: list[Finding], level: Level) -> None:
    certain = [one for one in findings if one["cause"]]
    open_words = " ".join(str(one["missing"]) for one in findings if not one["cause"])
    for one in certain:
        score = level.of(one["cause"])
        score.named += 1
        score.rightly += one["cause"] in run.may_be(one)
    if not run.has:
        level.controls += 1
        level.clean += not findings
    for cause in run.has:
        score = level.of(cause)
        score.runs += 1
        score.found += any(one["cause"] == cause for one in certain)
        score.possible += bool(re.search(rf"\b{cause}\b", open_words)) and all(one["cause"] != cause for one in certain)


def table(levels: Mapping[str, Level]) -> str:
    """Recall and precision by cause."""
    causes = sorted({cause for level in levels.values() for cause in level.scores}, key=_in_order)
    head = ["cause", "runs", "stores only", "and the trace topic", "and logs"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for cause in causes:
        runs = max(level.of(cause).runs for level in levels.values())
        lines.append(f"| {cause} | {runs} | {' | '.join(_told(level.of(cause)) for level in levels.values())} |")
    named = {name: sum(score.named for score in level.scores.values()) for name, level in levels.items()}
    right = {name: sum(score.rightly for score in level.scores.values()) for name, level in levels.items()}
    control = levels["logs"]
    summary = (
        "Certain findings that are right: " + ", ".join(f"{right[name]} of {named[name]} ({name})" for name in LEVELS)
        + f". Runs without a cause that were clean with logs: {control.clean} of {control.controls}."
    )  # fmt: skip
    return "\n".join([*lines, "", summary])


def _told(score: Score) -> str:
    if score.found:
        return f"{score.found} of {score.runs}, {score.rightly} of {score.named} right"
    return "said to be possible" if score.possible else "–"


def _in_order(cause: str) -> tuple[int, int]:
    return "PBORL".index(cause[0]), int(re.sub(r"\D", "", cause))


def is_of_todays_runs(page: str) -> bool:
    """Whether the page's table has all causes of the recorded runs, each with how many runs have it."""
    rows = re.findall(r"^\| ([PBORL]\d+) \| (\d+) \|", page.partition(BEGIN)[2].partition(END)[0], re.MULTILINE)
    runs = recorded()
    causes = {cause for run in runs for cause in run.has}
    return {cause: int(number) for cause, number in rows} == {
        cause: sum(cause in run.has for run in runs) for cause in causes
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="audit nothing: is the table of today's recorded runs?")
    given = parser.parse_args(arguments)
    whole = PAGE.read_text(encoding="utf-8")
    if given.check:
        if is_of_todays_runs(whole):
            return 0
        print(f"{PAGE.name} is not of today's recorded runs; run: make recorded", file=sys.stderr)
        return 1
    before, _, rest = whole.partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(grade(recorded()))}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
