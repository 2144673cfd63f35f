"""How well the audit named causes in many runs whose truth is known: pure arithmetic over their outcomes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.text import Scenario

OF_ONE_RUN = re.compile(r"\S+@\d+#\d+|, among them delivery [0-9a-f]+-\d+|(?<=-)[0-9a-f]{16}(?=\.jsonl)")
NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w-])")


class Judged(NamedTuple):
    """One run: what was played, and what became of it."""

    scenario: Scenario
    outcome: ScenarioOutcome

    @property
    def played(self) -> bool:
        """Whether it came to its end; of one that did not nothing can be said."""
        return bool(self.outcome.verdict)

    def named(self) -> Counter[str]:
        """Findings of each cause that the audit was certain of, what was asked for too."""
        verdict = self.outcome.verdict
        return Counter(verdict["causes"]) + Counter(verdict["expected_causes"])


class CauseScore(NamedTuple):
    """``runs`` had the cause, ``found`` of them were told so. Of ``certain`` findings that name it ``right`` may."""

    cause: str
    scenarios: tuple[str, ...]
    runs: int
    found: int
    certain: int
    right: int

    @property
    def recall(self) -> float | None:
        """None where no run had the cause."""
        return self.found / self.runs if self.runs else None

    @property
    def precision(self) -> float | None:
        """None where nothing was named."""
        return self.right / self.certain if self.certain else None


class ControlScore(NamedTuple):
    """A scenario without a cause: in how many runs nothing was blamed, lost or left open."""

    scenario: str
    runs: int
    clean: int


class LedgerScore(NamedTuple):
    """``agreed``: runs in which ledger and findings said the same of every delivery."""

    runs: int
    agreed: int
    double_effects: int


def causes(runs: Iterable[Judged]) -> list[CauseScore]:
    """One row a cause that a scenario has or that was named, in the order of the catalogue of causes.

    A finding is right where the scenario's truth has its cause, as what was done or as what this does beside.
    """
    scenarios: defaultdict[str, set[str]] = defaultdict(set)
    had, found, certain, right = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for run in runs:
        if not run.played:
            continue
        expect, named = run.scenario.expect, run.named()
        wanted = {*expect.causes, *expect.expected}
        had.update(wanted)
        found.update(wanted & named.keys())
        certain.update(named)
        right.update({cause: count for cause, count in named.items() if cause in wanted | {*expect.also}})
        for cause in wanted:
            scenarios[cause].add(run.scenario.id)
    return [
        CauseScore(name, tuple(sorted(scenarios[name])), had[name], found[name], certain[name], right[name])
        for name in sorted({*had, *certain}, key=_place)
    ]


def controls(runs: Iterable[Judged]) -> list[ControlScore]:
    """One row a scenario in which there is nothing to find, in their order."""
    played, clean = Counter[str](), Counter[str]()
    for run in runs:
        expect = run.scenario.expect
        if run.played and not expect.causes and not expect.expected:
            played[run.scenario.id] += 1
            clean[run.scenario.id] += run.outcome.ok
    return [ControlScore(name, played[name], clean[name]) for name in played]


def ledger(runs: Iterable[Judged]) -> LedgerScore:
    """Over all runs that came to their end."""
    ended = [run.outcome for run in runs if run.played]
    return LedgerScore(len(ended), sum(one.ledger_agrees for one in ended), sum(one.double_effects for one in ended))


def unplayed(runs: Iterable[Judged]) -> list[str]:
    """The runs that did not come to their end, and why, in words."""
    return [f"{run.scenario.id}: {'; '.join(run.outcome.problems)}" for run in runs if not run.played]


def wrong(runs: Iterable[Judged]) -> list[str]:
    """False statements of the audit or the ledger, in words. A statement of several runs comes once, with their number.

    Runs differ in ids of processes and deliveries, which are left out, and in counts, of which the range is shown.
    """
    said = defaultdict[tuple[str, ...], list[list[str]]](list)
    for run in runs:
        if run.played and not run.outcome.ok:
            text = f"{run.scenario.id}: {OF_ONE_RUN.sub(_kind_of, '; '.join(run.outcome.problems))}"
            said[tuple(NUMBER.split(text))].append(NUMBER.findall(text))
    return [_told(words, counts) + (f" ({len(counts)} runs)" if len(counts) > 1 else "")
            for words, counts in said.items()]  # fmt: skip


def _told(words: Sequence[str], counts: Sequence[Sequence[str]]) -> str:
    """``words`` stand before, between and after the numbers."""
    between = [*map(_range, zip(*counts, strict=True)), ""]
    return "".join(word + number for word, number in zip(words, between, strict=True))


def _range(counts: Iterable[str]) -> str:
    some = sorted(map(int, counts))
    lowest, highest = some[0], some[-1]
    return str(lowest) if lowest == highest else f"{lowest} to {highest}"


def _kind_of(found: re.Match[str]) -> str:
    if "@" in found[0]:
        return "a client"
    return "" if found[0].startswith(",") else "*"


def _place(cause: str) -> tuple[int, int, str]:
    """P, B, O, R, L by number."""
    number = "".join(filter(str.isdigit, cause))
    return "PBORL".find(cause[:1]), int(number or 0), cause
