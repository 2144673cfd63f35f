"""docs/claims.md: whatever a line is shown by exists, and every line is shown by something."""

import re
from pathlib import Path

import pytest
from dejamq_lab.scenario.text import catalogue

HOUSE = Path(__file__).parents[2]
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


def test_claims_that_do_not_hold_are_there_too() -> None:
    assert len(ROWS) >= 28
    assert sum("**N" in row or "**Only partly" in row for row in ROWS) >= 4
