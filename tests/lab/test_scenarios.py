"""Scenarios played with real faults, and judged by a real audit against the ledger of effects."""

import pytest
from dejamq_lab.scenario.run import ScenarioOutcome
from scenarios_played import INBOX, PLAYED

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("name", PLAYED)
def test_the_audit_names_what_was_done_and_nothing_else(outcomes: dict[str, ScenarioOutcome], name: str) -> None:
    assert outcomes[name].problems == []


def test_the_proof_of_a_cause_is_told_line_by_line(outcomes: dict[str, ScenarioOutcome]) -> None:
    proof = outcomes["O3"].proof
    assert proof[0].startswith("one O3: message ")
    assert any("OFF_LOAD" in line for line in proof)


@pytest.mark.parametrize(("name", "cause"), [("O3", "O3"), ("P1-v2", "P1")])
def test_effects_that_were_there_twice_are_there_once_with_an_inbox(
    outcomes: dict[str, ScenarioOutcome], name: str, cause: str
) -> None:
    careless, careful = outcomes[name], outcomes[INBOX[name]]
    assert careless.double_effects > 0
    assert careful.verdict["causes"][cause] > 0, "it was delivered twice all the same"
    assert (careful.double_effects, careful.problems) == (0, [])
