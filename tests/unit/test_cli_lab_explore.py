"""``dejamq lab explore`` and ``lab run --inbox``, without clusters: what is asked for, what is shown, how it ends."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_cli.command_line import app
from dejamq_cli.commands import lab
from dejamq_cli.commands import lab as lab_explore
from dejamq_lab.explore.hunt import FoundScenario, Hunted, HuntOptions
from dejamq_lab.scenario.script.text import Scenario
from dejamq_lab.scenario.script.variants import has_inbox
from typer.testing import CliRunner


def explored(monkeypatch: pytest.MonkeyPatch, found: list[FoundScenario], *more: str) -> tuple[Any, HuntOptions]:
    asked: list[HuntOptions] = []

    def hunt(options: HuntOptions, _: object) -> Hunted:
        asked.append(options)
        return Hunted(6, found)

    monkeypatch.setattr(lab_explore, "hunt", hunt)
    return CliRunner().invoke(app, ["lab", "explore", *more]), asked[0]


def test_what_is_asked_for_reaches_the_hunt_and_nothing_found_is_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    told, options = explored(monkeypatch, [], "--minutes", "2", "--seed", "7", "--jobs", "3", "--out", "here")
    assert (options.minutes, options.seed, options.jobs, options.out) == (2, 7, 3, Path("here"))
    assert told.exit_code == 0
    assert "6 played, 0 broke something" in told.output


def test_what_was_found_is_told_with_the_command_that_plays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FoundScenario(["1 messages are lost"], Path("explored/explored-7-3.toml"))]
    told, _ = explored(monkeypatch, found)
    assert told.exit_code == 1
    assert "broken: 1 messages are lost" in told.output
    assert "dejamq lab run explored/explored-7-3.toml" in told.output
    as_json, _ = explored(monkeypatch, found, "--seed", "7", "-o", "json")
    assert msgspec.json.decode(as_json.stdout) == {
        "seed": 7, "played": 6,
        "found": [{"problems": ["1 messages are lost"], "scenario": "explored/explored-7-3.toml"}],
    }  # fmt: skip


@pytest.mark.parametrize("more", [[], ["--inbox"]])
def test_with_an_inbox_every_consumer_has_one(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    played: list[Scenario] = []

    async def run(scenario: Scenario, *_: object) -> None:
        played.append(scenario)
        raise InterruptedError

    monkeypatch.setattr(lab, "run", run)
    CliRunner().invoke(app, ["lab", "run", "O3", *more])
    assert [has_inbox(one) for one in played] == [bool(more)]
