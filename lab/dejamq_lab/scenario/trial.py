"""Many runs: every scenario with every seed played, several side by side, then audited as one history.

What was played or audited is not done again, so an interrupted trial goes on where it was.
"""

import asyncio
import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.play import Tell
from dejamq_lab.scenario.run import Outcome, judged, play
from dejamq_lab.scenario.seeds import varied
from dejamq_lab.scenario.text import Scenario

PLAYED, OUTCOME = "played.json", "outcome.json"


class Run(NamedTuple):
    """One scenario with one seed, and where it is kept."""

    scenario: Scenario
    seed: int
    folder: Path


class Played(msgspec.Struct, frozen=True):
    """What is left to audit. ``problem`` says why a scenario did not come to its end; '' when it did."""

    scenario: str
    journal_dir: str
    seconds: float
    problem: str = ""


def trial(
    scenarios: Sequence[Scenario], seeds: Iterable[int], directory: Path, tell: Tell, *, jobs: int = 1
) -> list[Outcome]:
    """Play and audit what is not there yet; all outcomes, by scenario and seed. ``jobs``: runs played side by side."""
    seeds = list(seeds)
    runs = [Run(scenario, seed, directory / f"{scenario.id}-{seed}") for scenario in scenarios for seed in seeds]
    asyncio.run(_play_all([run for run in runs if not (run.folder / PLAYED).exists()], tell, jobs))
    left = [folder for _, _, folder in runs if not (folder / OUTCOME).exists()]
    if left:
        tell(f"audit of {len(left)} runs")
        _audit(left)
    return [_outcome(scenario, folder) for scenario, _, folder in runs]


async def _play_all(runs: Sequence[Run], tell: Tell, jobs: int) -> None:
    """Each run has addresses of its own (``stage.own_host``). They mostly wait: there may be more than cores."""
    free, ended = asyncio.Semaphore(jobs), itertools.count(1)

    async def one(run: Run) -> None:
        async with free:
            await _play(run)
        tell(f"{next(ended)}/{len(runs)} {run.folder.name}")

    async with asyncio.TaskGroup() as tasks:
        for run in runs:
            tasks.create_task(one(run))


async def _play(run: Run) -> None:
    scenario, seed, folder = run
    try:
        played = await play(varied(scenario, seed), folder, lambda text: None)
        found = Played(scenario.id, str(played.journal_dir), played.seconds)
        for store in played.stores:  # a hundred MB a run, and a trial judges by journals
            shutil.rmtree(store, ignore_errors=True)
    except Exception as error:  # whatever breaks one run must not end hours of others
        found = Played(scenario.id, "", 0.0, str(error) or repr(error))
        folder.mkdir(parents=True, exist_ok=True)
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
