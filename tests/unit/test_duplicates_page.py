"""docs/duplicates.md: made of the causes of the audit and the scenarios of the lab, and a stale page is told."""

import inspect
import re
from pathlib import Path

import dejamq
import duplicates_page
import pytest
import settings_page
from dejamq_analytics.report.causes import CAUSES
from dejamq_lab.scenario.script.not_supported import all_causes
from dejamq_lab.scenario.script.text import catalogue


def test_the_page_is_todays() -> None:
    assert duplicates_page.main(["--check"]) == 0, "run: make duplicates"


def test_every_cause_that_the_audit_names_says_what_happens_how_it_looks_and_how_to_prevent_it() -> None:
    page = duplicates_page.page()
    for cause, told in CAUSES.items():
        section = " ".join(page.partition(f"### {cause}: {told.title}\n")[2].partition("\n#")[0].split())
        assert told.story in section
        assert "- In a report: " in section, f"{cause} has no line in tools/duplicates_looks.toml"
        assert f"- Prevent it: {told.change}" in section


@pytest.mark.parametrize("cause", CAUSES)
def test_what_a_cause_says_to_set_can_be_set(cause: str) -> None:
    """A setting of a server or client, an argument of a client, or a method of it."""
    clients = (dejamq.PushConsumer, dejamq.Producer, dejamq.LitePullConsumer, dejamq.SimpleConsumer.receive)
    arguments = {name for client in clients for name in (*inspect.signature(client).parameters, *dir(client))}
    words = re.findall(r"\b[a-z]+(?:_[a-z0-9]+)+\b", CAUSES[cause].setting)
    assert [word for word in words if f"`{word}`" not in settings_page.page() and word not in arguments] == []


def test_every_scenario_is_a_command_on_the_page() -> None:
    page = duplicates_page.page()
    for scenario in catalogue():
        assert f"`dejamq lab run {scenario}`" in page


def test_every_known_cause_has_its_section() -> None:
    page = duplicates_page.page()
    assert [cause for cause in all_causes() if f"### {cause}: " not in page] == []


@pytest.mark.parametrize("text", ["an older page", None])
def test_a_page_that_is_not_todays_is_told(text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "duplicates.md"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(duplicates_page, "PAGE", path)
    assert duplicates_page.main(["--check"]) == 1
