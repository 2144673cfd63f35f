"""Whether the audit said what the scenario knows to be true, and whether the ledger says the same."""

from collections.abc import Collection
from typing import Any

import msgspec

from dejamq_lab.scenario.script.text import ANY, ExpectedAudit


class RunFacts(msgspec.Struct, frozen=True):
    """The facts about one run. ``pairs``: the ids of first and second delivery of each finding."""

    verdict: dict[str, Any]
    pairs: Collection[tuple[str, str]]
    effects: Collection[str]
    doubles: Collection[str]
    inbox: bool = False
    """Whether every effect went through an inbox."""
    meant: Collection[str] = ()
    """Deliveries that are no repetition to an inbox: each member, group or topic has its own (L8, L9)."""

    @property
    def unmeant(self) -> set[str]:
        """Double effects that an inbox must prevent."""
        return set(self.doubles).difference(self.meant)


def problems(expected: ExpectedAudit, told: RunFacts) -> list[str]:
    """The faults, in sentences; empty when the judge passed."""
    return [*_causes(expected, told.verdict), *_losses(expected, told.verdict), *ledger_problems(told)]


def _causes(expected: ExpectedAudit, verdict: dict[str, Any]) -> list[str]:
    causes, asked = verdict["causes"], verdict["expected_causes"]
    wrong = [f"{cause} was not found" for cause in expected.causes if not causes.get(cause)]
    also = {*causes, *asked} if ANY in expected.also else {*expected.also}
    allowed = {*expected.causes, *also}
    wrong += [f"{cause} was blamed {count} times" for cause, count in causes.items() if cause not in allowed]
    wrong += [f"{cause} was not among the expected causes" for cause in expected.expected if not asked.get(cause)]
    unasked = set(asked) - {*expected.expected, *also}
    wrong += [f"{cause} was taken for expected" for cause in sorted(unasked)]
    if verdict["undetermined"] and not expected.undetermined:
        missing = ", ".join(f"{text} ({count})" for text, count in verdict["undetermined_missing"].items())
        wrong.append(f"{verdict['undetermined']} undetermined: {missing}")
    if expected.deliveries and verdict["deliveries"] != expected.deliveries:
        wrong.append(f"{verdict['deliveries']} deliveries instead of {expected.deliveries}")
    kinds = verdict["anomalies"]
    wrong += [f"{kinds[kind]} {kind}" for kind in expected.never if kinds.get(kind)]
    return wrong + [f"no anomaly {kind}" for kind in expected.anomalies if not kinds.get(kind)]


def _losses(expected: ExpectedAudit, verdict: dict[str, Any]) -> list[str]:
    return [f"{verdict['lost']} messages are lost"] if verdict["lost"] and not expected.lost else []


def ledger_problems(told: RunFacts) -> list[str]:
    """Every double effect is a finding, and every finding whose deliveries both had an effect doubled one.

    The ledger's clock tells which effect came second; it is not the clock of the deliveries.
    """
    doubles, effects = set(told.doubles), set(told.effects)
    both = [pair for pair in told.pairs if effects.issuperset(pair)]
    wrong = [f"{len(told.unmeant)} double effects in spite of the inbox"] if told.inbox and told.unmeant else []
    if unseen := sorted(doubles.difference(*told.pairs)):
        wrong.append(f"{len(unseen)} double effects in the ledger are no finding, among them delivery {unseen[0]}")
    if invented := sorted(second for first, second in both if doubles.isdisjoint((first, second))):
        wrong.append(f"{len(invented)} findings have a single effect in the ledger, among them delivery {invented[0]}")
    return wrong
