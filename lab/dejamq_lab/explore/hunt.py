"""The hunt: worlds are played until the time is over and audited together; a broken invariant is reduced.

The invariants are the scenario's own expectation: nothing acknowledged is lost or never seen, order where it is
promised, every duplicate has a cause, the ledger says the same as the audit, and everything comes to its end.
"""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dejamq_lab.explore.reduce import reduced
from dejamq_lab.explore.world import Unit, World, world
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.seeds import AS_WRITTEN
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.script.written import written
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_lab.scenario.trial.trial import trial

AT_ONCE = 6
"""Worlds between two audits: one audit costs as much as playing one or two."""
MOST_REPLAYS = 24
VARYING = re.compile(r"[0-9A-Fa-f]{16,}\S*|\d+")
"""Ids and numbers: two failures of one kind differ only in these."""
Tell = Callable[[str], None]


class HuntOptions(NamedTuple):
    """``directory`` is for runs, ``out`` for the scenarios of what was found, ``kind`` where they are played."""

    seed: int
    minutes: float
    directory: Path
    out: Path
    jobs: int = 1
    kind: Kind = Kind.PROCESS
    at_once: int = AT_ONCE
    make: Callable[[int, int], World] = world
    """From a seed and a number."""
    most_replays: int = MOST_REPLAYS


class FoundScenario(NamedTuple):
    """A broken invariant and the scenario that shows it."""

    problems: list[str]
    path: Path


class Hunted(NamedTuple):
    played: int
    found: list[FoundScenario]


def hunt(options: HuntOptions, tell: Tell) -> Hunted:
    """Play for so long; begins no further worlds when the time is over, and reduces what was found by then."""
    deadline, number, found = time.monotonic() + options.minutes * 60, 0, list[FoundScenario]()
    while not number or time.monotonic() < deadline:
        worlds = [options.make(options.seed, number + each) for each in range(options.at_once)]
        number += len(worlds)
        scenarios = [each.scenario() for each in worlds]
        folder = options.directory / "worlds"
        outcomes = trial(scenarios, [AS_WRITTEN], folder, tell, jobs=options.jobs, kind=options.kind)
        for made, outcome in zip(worlds, outcomes, strict=True):
            if kinds := kinds_of(outcome):
                tell(f"{outcome.scenario}: {'; '.join(outcome.problems)}")
                found.append(
                    FoundScenario(outcome.problems, _keep(options, made, _reduce(options, made, kinds, tell), kinds))
                )
    return Hunted(number, found)


def kinds_of(outcome: ScenarioOutcome) -> set[str]:
    """The broken invariants, without ids and numbers. A journal with holes excuses questions that it leaves open."""
    excused = outcome.verdict.get("journal_gaps") and all(
        "gap" in reason for reason in outcome.verdict.get("undetermined_missing", {})
    )
    problems = [text for text in outcome.problems if not (excused and "undetermined:" in text)]
    return {VARYING.sub("#", text) for text in problems}


def _reduce(options: HuntOptions, made: World, kinds: set[str], tell: Tell) -> list[Unit]:
    rounds = 0

    def fails(candidates: Sequence[list[Unit]]) -> list[bool]:
        nonlocal rounds
        rounds += 1
        folder = options.directory / f"{made.frame.id}-{rounds}"
        tell(f"{made.frame.id}: {len(candidates)} with fewer faults")
        shorter = [_numbered(made.scenario(units), number) for number, units in enumerate(candidates, 1)]
        outcomes = trial(shorter, [AS_WRITTEN], folder, tell, jobs=options.jobs, kind=options.kind)
        return [not kinds.isdisjoint(kinds_of(outcome)) for outcome in outcomes]

    return reduced(made.units, fails, options.most_replays)


def _numbered(scenario: Scenario, number: int) -> Scenario:
    """Candidates of one round are played in folders of their own."""
    return msgspec.structs.replace(scenario, id=f"{scenario.id}-{number}")


def _keep(options: HuntOptions, made: World, units: Sequence[Unit], kinds: set[str]) -> Path:
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{made.frame.id}.toml"
    said = "".join(f"# {kind}\n" for kind in sorted(kinds))
    path.write_text(said + written(made.scenario(units)), encoding="utf-8")
    return path
