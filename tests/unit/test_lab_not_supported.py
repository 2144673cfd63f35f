"""Every known cause of duplicates has a scenario, or is listed with why it has none."""

from pathlib import Path

import msgspec
import pytest
from dejamq_cli.command_line import app
from dejamq_lab.scenario.script.not_supported import all_causes, cause_of, not_supported
from dejamq_lab.scenario.script.text import catalogue
from typer.testing import CliRunner

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def accounted() -> set[str]:
    """Causes that are shown, or listed with why not."""
    scenarios = list(catalogue())
    return {cause_of(scenario) for scenario in scenarios} | {each.id for each in not_supported(scenarios)}


@pytest.mark.parametrize("cause", all_causes())
def test_every_known_cause_is_a_scenario_or_listed_as_not_supported(accounted: set[str], cause: str) -> None:
    assert cause in accounted


def test_what_cannot_happen_here_has_no_scenario_and_says_why() -> None:
    listed = not_supported(())
    shown = {cause_of(scenario) for scenario in catalogue()}
    assert not shown.intersection(each.id for each in listed)
    assert {each.id for each in listed} <= set(all_causes())
    assert all(len(each.why) > 20 for each in listed)
    assert len({each.id for each in listed}) == len(listed)


def test_what_shows_that_a_cause_does_not_happen_exists() -> None:
    for test in [test for each in not_supported(()) for test in each.shown_by]:
        file, name = test.split("::")
        assert f"def {name}(" in (TESTS / file).read_text(encoding="utf-8"), test


def test_a_cause_that_got_its_scenario_is_listed_no_more() -> None:
    waiting = not_supported(())[0]
    assert waiting.id not in [each.id for each in not_supported([f"{waiting.id}-variant"])]


def test_the_list_shows_what_is_not_supported_under_a_heading_of_its_own() -> None:
    text = CliRunner().invoke(app, ["lab", "list"]).output
    scenarios, listed = text.split("not supported")
    assert "healthy" in scenarios
    assert "B8" not in scenarios
    assert "RocketMQ leaves off" in " ".join(listed.split())


def test_programs_get_what_is_not_supported_with_why() -> None:
    rows = msgspec.json.decode(CliRunner().invoke(app, ["lab", "list", "-o", "json"]).output)
    by_id = {row["id"]: row for row in rows}
    assert by_id["O1"]["supported"]
    assert not by_id["B8"]["supported"]
    assert "makes no other" in by_id["B8"]["why"]
