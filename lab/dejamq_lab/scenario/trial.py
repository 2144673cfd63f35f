"""Many runs: every scenario with every seed played one after the other, then audited in one Spark session.

What was played or audited is not done again, so an interrupted trial goes on where it was.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.play import Tell
from dejamq_lab.scenario.run import Outcome, judged, play
from dejamq_lab.scenario.text import Scenario

PLAYED, OUTCOME = "played.json", "outcome.json"


class Played(msgspec.Struct, frozen=True):
    """What is left to audit. ``problem`` says why a scenario did not come to its end; '' when it did."""

    scenario: str
    journal_dir: str
    stores: list[str]
    seconds: float
    problem: str = ""


def trial(scenarios: Sequence[Scenario], seeds: Iterable[int], directory: Path, tell: Tell) -> list[Outcome]:
    """Play and audit what is not there yet; all outcomes, by scenario and seed."""
    runs = [(scenario, directory / f"{scenario.id}-{seed}") for scenario in scenarios for seed in seeds]
    for number, (scenario, folder) in enumerate(runs, 1):
        if not (folder / PLAYED).exists():
            tell(f"{number}/{len(runs)} {folder.name}")
            _play(scenario, folder)
    left = [folder for _, folder in runs if not (folder / OUTCOME).exists()]
    if left:
        tell(f"audit of {len(left)} runs")
        _audit(left)
    return [_outcome(scenario, folder) for scenario, folder in runs]


def _play(scenario: Scenario, folder: Path) -> None:
    try:
        played = asyncio.run(play(scenario, folder, lambda text: None))
        found = Played(scenario.id, str(played.journal_dir), [str(path) for path in played.stores], played.seconds)
    except ClusterFailed as error:
        found = Played(scenario.id, "", [], 0.0, str(error))
    (folder / PLAYED).write_bytes(msgspec.json.encode(found))


def _audit(folders: Sequence[Path]) -> None:
    """In a process of its own, whose Spark ends with it."""
    command = [sys.executable, "-m", "dejamq_lab.scenario.audit_runs", *map(str, folders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ClusterFailed(f"the audit failed: {(done.stdout.strip().splitlines() or ['it said nothing'])[-1]}")


def _outcome(scenario: Scenario, folder: Path) -> Outcome:
    if (folder / OUTCOME).exists():
        return msgspec.json.decode((folder / OUTCOME).read_bytes(), type=Outcome)
    played = msgspec.json.decode((folder / PLAYED).read_bytes(), type=Played)
    if played.problem:
        outcome = Outcome(scenario.id, False, [played.problem], {}, [], 0.0, str(folder))
    else:
        outcome = judged(scenario, folder, played.seconds)
    (folder / OUTCOME).write_bytes(msgspec.json.encode(outcome))
    return outcome
