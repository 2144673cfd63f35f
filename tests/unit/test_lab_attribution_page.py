"""The page of a trial: its tables are made anew between the marks, and nothing else of it is touched."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.text import Actor, ExpectedAudit, Scenario
from dejamq_lab.scenario.trial.attribution import Judged
from dejamq_lab.scenario.trial.page import BEGIN, END, fill, made
from dejamq_proto.codes import ConfigError

HOUSE = Path(__file__).parents[2]


def run(name: str, found: dict[str, int], *problems: str, **more: Any) -> Judged:
    expect = ExpectedAudit(causes=(name,)) if name[1:].isdigit() else ExpectedAudit()
    scenario = Scenario(
        id=name, title="t", happens="h", source="s", actors={"p": Actor(kind="producer", group="p")}, steps=[],
        expect=expect,
    )  # fmt: skip
    verdict = {"causes": found, "expected_causes": {}, "duplicates": sum(found.values())}
    return Judged(scenario, ScenarioOutcome(name, not problems, list(problems), verdict, [], 1.0, "", **more))


def test_a_level_is_told_by_cause_by_control_and_by_ledger() -> None:
    runs = [run("O1", {"O1": 3}, double_effects=3), run("O1", {}, "O1 was not found"), run("healthy", {})]
    text = made({"forensic": runs}, "2026-11-22", "make trial SEEDS=2")
    assert "Played on 2026-11-22 by `make trial SEEDS=2` on " in text
    assert "| O1 | O1 | 2 | 1 | 0.50 | 3 | 3 | 1.00 |" in text
    assert "| healthy | 1 | 1 |" in text
    assert "at precision 1.00: 0 of 1 causes. 3 of 3 certain findings are right." in text
    assert "in 3 of 3 runs (3 double effects)" in text
    assert text.endswith("## What went wrong\n\n- forensic: O1: O1 was not found")


def test_a_cause_that_was_named_where_it_cannot_be_has_no_recall_and_a_low_precision() -> None:
    assert "| R2 |  | 0 | 0 | – | 4 | 0 | 0.00 |" in made({"audit": [run("O1", {"O1": 1, "R2": 4})]}, "d", "c")


def test_with_an_inbox_double_effects_are_the_question() -> None:
    text = made({"inbox": [run("O1", {"O1": 7}), run("O2", {"O2": 2})]}, "d", "c")
    assert (
        "2 runs in which every consumer's effects went through `Inbox`: 9 duplicates were delivered, 0 effects" in text
    )
    assert text.endswith("Nothing.")


def test_a_page_without_the_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no table here")
    with pytest.raises(ConfigError, match=r"page\.md has no place for the table"):
        fill(page, "table")
    assert page.read_text() == "no table here"


def test_the_committed_page_has_its_marks() -> None:
    page = (HOUSE / "docs" / "attribution.md").read_text()
    assert page.index(BEGIN) < page.index(END)
