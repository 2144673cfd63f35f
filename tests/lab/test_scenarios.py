"""Scenarios played on processes, with real faults, and judged by a real audit against the ledger of effects."""

from pathlib import Path

import pytest
from dejamq_lab.scenario.run import Outcome
from scenarios_played import PLAYED


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_the_audit_names_what_was_done_and_nothing_else(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.problems == []
    assert (Path(outcome.directory) / "report.html").exists()


def test_the_proof_of_a_cause_is_told_line_by_line(outcomes: dict[str, Outcome]) -> None:
    proof = outcomes["O3"].proof
    assert proof[0].startswith("one O3: message ")
    assert any("OFF_LOAD" in line for line in proof)
