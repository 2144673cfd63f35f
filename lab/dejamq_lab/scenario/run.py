"""One scenario from its text to the judgement of what the audit made of it."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec

from dejamq_lab.auditing import audit
from dejamq_lab.demo.compare import Finding, read_findings
from dejamq_lab.scenario.judge import RunFacts, ledger_problems, problems
from dejamq_lab.scenario.play import Play, Tell
from dejamq_lab.scenario.script.ledger import EffectLedger
from dejamq_lab.scenario.script.seeds import AS_WRITTEN, varied
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.script.variants import has_inbox
from dejamq_lab.scenario.stage.stages import Kind, stage_for

L9_OF_GROUPS = "L9", "model"


MEANT = ("L8", "L9")
"""Causes of deliveries that are each meant to have their effect."""


class ScenarioOutcome(msgspec.Struct, frozen=True):
    """How a scenario ended. ``problems`` is empty when the audit named exactly what was done."""

    scenario: str
    ok: bool
    problems: list[str]
    verdict: dict[str, Any]
    proof: list[str]
    """One duplicate of each cause with its evidence, as lines."""
    seconds: float
    directory: str
    double_effects: int = 0
    """In the ledger: deliveries whose effect another one had had before, without those that are meant to (L8, L9)."""
    ledger_agrees: bool = True
    """Whether the findings say the same of every delivery as the ledger."""


class PlayedScenario(msgspec.Struct, frozen=True):
    """Where a scenario that was played has its journals and stores."""

    journal_dir: Path
    stores: list[Path]
    seconds: float


async def run(
    scenario: Scenario, directory: Path, tell: Tell, seed: int = AS_WRITTEN, kind: Kind = Kind.PROCESS
) -> ScenarioOutcome:
    """Play and judge. ``directory`` is made anew; it keeps journals, stores, ledger, findings and report. ``seed``
    settles what the scenario leaves open.

    Raises ClusterFailed when a step does not come to its end, or the audit to no verdict, and NotSupported.
    """
    played = await play(varied(scenario, seed), directory, tell, kind)
    tell("audit")
    began = time.monotonic()
    await audit(played.journal_dir, played.stores, directory)
    return judged(scenario, directory, played.seconds + time.monotonic() - began)


async def play(scenario: Scenario, directory: Path, tell: Tell, kind: Kind = Kind.PROCESS) -> PlayedScenario:
    """Play only. Raises ClusterFailed, and NotSupported for a scenario that cannot be played there."""
    began = time.monotonic()
    shutil.rmtree(directory, ignore_errors=True)
    stage = stage_for(scenario, directory, kind)
    async with stage:
        await Play(stage, tell).run()
    return PlayedScenario(stage.cluster.journal_dir, stage.cluster.store_dirs, time.monotonic() - began)


def judged(scenario: Scenario, directory: Path, seconds: float) -> ScenarioOutcome:
    """The judgement of the audit whose output is in ``directory``."""
    verdict, findings = json.loads((directory / "verdict.json").read_bytes()), read_findings(directory)
    told = _told(directory, verdict, findings, inbox=has_inbox(scenario))
    wrong = problems(scenario.expect, told)
    return ScenarioOutcome(
        scenario.id, not wrong, wrong, verdict, proof(findings), seconds, str(directory),
        double_effects=len(told.unmeant), ledger_agrees=not ledger_problems(told),
    )  # fmt: skip


def proof(findings: list[Finding]) -> list[str]:
    """One finding of each cause, told."""
    lines: list[str] = []
    for cause in sorted({row["cause"] for row in findings if row["cause"]}):
        row = next(row for row in findings if row["cause"] == cause)
        lines.append(f"one {cause}: message {row['message_id']} {row['business_key'] or ''}".rstrip())
        lines += [f"  {line['process']} #{line['seq']} {line['event']}: {line['summary']}" for line in row["evidence"]]
    return lines


def _told(directory: Path, verdict: dict[str, Any], findings: list[Finding], *, inbox: bool) -> RunFacts:
    # the ledger counts each group for itself
    rows = [row for row in findings if row["first"] and row["second"] and (row["cause"], row["stage"]) != L9_OF_GROUPS]
    pairs = {(row["first"]["delivery_id"] or "", row["second"]["delivery_id"] or "") for row in rows}
    meant = {row[side]["delivery_id"] for row in rows if row["cause"] in MEANT for side in ("first", "second")}
    ledger = EffectLedger(directory / "ledger.sqlite")
    try:
        return RunFacts(verdict, pairs, ledger.delivery_ids(), ledger.doubles(), inbox, meant)
    finally:
        ledger.close()
