"""docs/claims.md: whatever a line is shown by exists, and every line is shown by something."""

import re
from pathlib import Path

import pytest
from dejamq_lab.rocketmq.scenario import recorded_name
from dejamq_lab.rocketmq.scenarios import SCENARIOS
from dejamq_lab.scenario.script.text import catalogue

HOUSE = Path(__file__).parents[2]
RECORDED = HOUSE / "tests" / "data" / "rocketmq"
ROWS = [line for line in (HOUSE / "docs" / "claims.md").read_text("utf-8").splitlines() if re.match(r"\| \d+ \|", line)]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_what_shows_a_claim_exists(row: str) -> None:
    shown = re.findall(r"`([^`]+)`", row.split("|")[5])
    assert shown, "nothing shows it"
    for one in shown:
        if one.startswith("dejamq lab run "):
            assert one.removeprefix("dejamq lab run ") in catalogue()
        else:
            file, name = one.split("::")
            assert re.search(rf"^(async )?def {name}\(", (HOUSE / "tests" / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_what_is_said_to_be_seen_on_rocketmq_was_recorded(row: str) -> None:
    for command in re.findall(r"`([^`]+)`", row.split("|")[6]):
        scenario, words = command.removeprefix("dejamq lab run ").split(" ", 1)
        assert words == "--cluster rocketmq"
        assert any((RECORDED / recorded_name(scenario, client)).exists() for client in SCENARIOS[scenario].clients)


def test_claims_that_do_not_hold_are_there_too() -> None:
    assert len(ROWS) >= 28
    assert sum("**N" in row or "**Only partly" in row for row in ROWS) >= 4
