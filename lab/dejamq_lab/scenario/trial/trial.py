"""Many runs: every scenario with every seed played, several side by side, then audited as one history.

Finished runs and audits are not done again, so an interrupted trial goes on where it was. A scenario whose text was
changed since is played again; only what it expects may change.
"""

import asyncio
import hashlib
import itertools
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.play import Tell
from dejamq_lab.scenario.run import ScenarioOutcome, judged, play
from dejamq_lab.scenario.script.seeds import varied
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.stage.stages import Kind, fits

PLAYED, AUDITED = "played.json", "verdict.json"


class TrialRun(NamedTuple):
    """One scenario with one seed, and where it is kept."""

    scenario: Scenario
    seed: int
    folder: Path


class PlayedRun(msgspec.Struct, frozen=True):
    """A run that is left to audit. ``problem`` says why a scenario did not come to its end; '' when it did."""

    scenario: str
    journal_dir: str
    seconds: float
    digest: str = ""
    """Of the scenario as it was played."""
    problem: str = ""


def trial(
    scenarios: Sequence[Scenario], seeds: Iterable[int], directory: Path, tell: Tell, *, jobs: int = 1,
    kind: Kind = Kind.PROCESS, kinds: Mapping[str, Kind] | None = None, tries: int = 1,
) -> list[ScenarioOutcome]:  # fmt: skip
    """Play and audit the missing runs; return all outcomes, by scenario and seed. ``jobs``: runs played side by side.

    ``kind``: the stage of the runs; ``kinds`` names another stage for some, by id. A run that cannot be played there
    is played on processes. ``tries``: the most plays of a run that does not come to its end, as on a machine that is
    too busy for its deadlines. A run with a wrong audit is never played again.
    """
    seeds = list(seeds)
    runs = [TrialRun(scenario, seed, directory / f"{scenario.id}-{seed}") for scenario in scenarios for seed in seeds]
    where = defaultdict(lambda: kind, kinds or {})
    left = [run for run in runs if not _is_played(run)]
    for _ in range(tries):
        asyncio.run(_play_all(left, tell, jobs, where))
        left = [run for run in left if _broken(run, tell)]
    new = [run.folder for run in runs if not _played(run).problem and not (run.folder / AUDITED).exists()]
    if new:
        tell(f"audit of {len(new)} runs")
        _audit(new)
    return [_outcome(run) for run in runs]


def _played(run: TrialRun) -> PlayedRun:
    return msgspec.json.decode((run.folder / PLAYED).read_bytes(), type=PlayedRun)


def _broken(run: TrialRun, tell: Tell) -> bool:
    problem = _played(run).problem
    if problem:
        tell(f"{run.folder.name} did not come to its end: {problem}")
    return bool(problem)


def _is_played(run: TrialRun) -> bool:
    return (run.folder / PLAYED).exists() and _played(run).digest == _digest(run.scenario)


def _digest(scenario: Scenario) -> str:
    """The same for scenarios that are played alike, whatever they are called and expect."""
    played = (scenario.cluster, scenario.settings, scenario.actors, scenario.steps)
    return hashlib.sha256(msgspec.json.encode(played)).hexdigest()


async def _play_all(runs: Sequence[TrialRun], tell: Tell, jobs: int, where: Mapping[str, Kind]) -> None:
    """Each run has addresses of its own (``stage.own_host``). They mostly wait: there may be more than cores."""
    free, ended = asyncio.Semaphore(jobs), itertools.count(1)

    async def one(run: TrialRun) -> None:
        async with free:
            kind = where[run.scenario.id]
            await _play(run, kind if fits(run.scenario, kind) else Kind.PROCESS)
        tell(f"{next(ended)}/{len(runs)} {run.folder.name}")

    async with asyncio.TaskGroup() as tasks:
        for run in runs:
            tasks.create_task(one(run))


async def _play(run: TrialRun, kind: Kind) -> None:
    scenario, seed, folder = run
    try:
        played = await play(varied(scenario, seed), folder, lambda text: None, kind)
        found = PlayedRun(scenario.id, str(played.journal_dir), played.seconds, _digest(scenario))
    except Exception as error:  # whatever breaks one run must not end hours of others
        found = PlayedRun(scenario.id, "", 0.0, _digest(scenario), str(error) or repr(error))
        folder.mkdir(parents=True, exist_ok=True)
    for store in folder.glob("cluster/*/store"):  # a hundred MB a run, slaves' too, and a trial judges by journals
        shutil.rmtree(store, ignore_errors=True)
    (folder / PLAYED).write_bytes(msgspec.json.encode(found))


def _audit(folders: Sequence[Path]) -> None:
    """In a process of its own, whose Spark ends with it."""
    command = [sys.executable, "-m", "dejamq_lab.scenario.trial.audit_runs", *map(str, folders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ClusterFailed(f"the audit failed: {(done.stdout.strip().splitlines() or ['it said nothing'])[-1]}")


def _outcome(run: TrialRun) -> ScenarioOutcome:
    played = _played(run)
    if played.problem:
        return ScenarioOutcome(run.scenario.id, False, [played.problem], {}, [], 0.0, str(run.folder))
    return judged(run.scenario, run.folder, played.seconds)
