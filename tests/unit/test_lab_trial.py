"""A trial goes on where it was interrupted, plays again what was changed, and survives a run that breaks."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.run import PlayedScenario as RunPlayed
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import Actor, ExpectedAudit, Scenario
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_lab.scenario.trial import command as trial_command
from dejamq_lab.scenario.trial import trial as trial_module
from dejamq_lab.scenario.trial.trial import AUDITED, trial
from dejamq_proto.codes import ConfigError


def scenario(name: str, **changes: Any) -> Scenario:
    made = Scenario(
        id=name, title="t", happens="h", source="s", actors={"p": Actor(kind="producer", group="p")},
        steps=[steps.Start(who="p")],
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


class World:
    """In place of clusters and Spark: what was played, and in which order it was audited."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.played: list[str] = []
        self.kinds: list[tuple[str, str]] = []
        self.playing = self.most = 0
        self.audits: list[list[str]] = []
        self.broken: set[str] = set()
        self.unlucky: set[str] = set()
        """Broken once only."""
        for name in ("play", "_audit", "judged"):
            monkeypatch.setattr(trial_module, name, getattr(self, name.strip("_")))

    async def play(self, one: Scenario, folder: Path, _: object, kind: Kind) -> RunPlayed:
        self.kinds.append((one.id, kind.value))
        self.most = max(self.most, self.playing + 1)
        self.playing += 1
        await asyncio.sleep(0)
        self.playing -= 1
        self.played.append(folder.name)
        if folder.name in self.broken | self.unlucky:
            self.unlucky.discard(folder.name)
            raise ClusterFailed("step 1: it broke")
        store = folder / "cluster" / "broker-a-s1" / "store"
        store.mkdir(parents=True)
        return RunPlayed(folder / "journal", [store], 1.0)

    def audit(self, folders: Sequence[Path]) -> None:
        self.audits.append([folder.name for folder in folders])
        for folder in folders:
            (folder / AUDITED).write_text("{}")

    def judged(self, one: Scenario, folder: Path, seconds: float) -> ScenarioOutcome:
        missing = [f"{cause} was not found" for cause in one.expect.causes]
        return ScenarioOutcome(one.id, not missing, missing, {"causes": {}}, [], seconds, str(folder))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def tried(tmp_path: Path, *scenarios: Scenario, seeds: Sequence[int] = (1,)) -> list[ScenarioOutcome]:
    return trial(scenarios, seeds, tmp_path, lambda text: None)


def test_every_seed_is_played_and_all_are_audited_together_without_their_stores(tmp_path: Path, made: World) -> None:
    tried(tmp_path, scenario("O1"), scenario("O2"), seeds=(1, 2))
    assert made.played == ["O1-1", "O1-2", "O2-1", "O2-2"]
    assert made.audits == [made.played]
    assert not list(tmp_path.glob("*/store"))


def test_what_was_played_is_not_played_again_and_what_is_new_is_audited_alone(tmp_path: Path, made: World) -> None:
    tried(tmp_path, scenario("O1"))
    tried(tmp_path, scenario("O1"), scenario("O2"))
    assert made.played == ["O1-1", "O2-1"]
    assert made.audits == [["O1-1"], ["O2-1"]]


def test_a_scenario_whose_text_was_changed_is_played_again(tmp_path: Path, made: World) -> None:
    tried(tmp_path, scenario("O1"))
    tried(tmp_path, scenario("O1", steps=[steps.Start(who="p"), steps.Close(who="p")]))
    assert made.played == ["O1-1", "O1-1"]


def test_what_a_scenario_expects_is_judged_as_it_is_now(tmp_path: Path, made: World) -> None:
    (before,) = tried(tmp_path, scenario("O1"))
    (after,) = tried(tmp_path, scenario("O1", expect=ExpectedAudit(causes=("O1",))))
    assert (before.ok, after.problems, made.played) == (True, ["O1 was not found"], ["O1-1"])


def test_a_run_that_breaks_is_told_and_the_others_go_on(tmp_path: Path, made: World) -> None:
    made.broken = {"O1-1"}
    broken, sound = tried(tmp_path, scenario("O1"), scenario("O2"))
    assert (broken.problems, broken.verdict, sound.ok) == (["step 1: it broke"], {}, True)
    assert made.audits == [["O2-1"]]


def test_what_broke_may_be_played_once_more_and_what_breaks_again_stays_broken(tmp_path: Path, made: World) -> None:
    made.broken, made.unlucky = {"O1-1"}, {"O2-1"}
    told: list[str] = []
    found = trial([scenario("O1"), scenario("O2"), scenario("O3")], [1], tmp_path, told.append, tries=2)
    assert [outcome.ok for outcome in found] == [False, True, True]
    assert made.played == ["O1-1", "O2-1", "O3-1", "O1-1", "O2-1"]
    assert "O2-1 did not come to its end: step 1: it broke" in told
    assert made.audits == [["O2-1", "O3-1"]]


def test_the_command_plays_again_what_broke_only_when_asked_and_audits_again_when_rules_changed(
    tmp_path: Path, made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_command, "catalogue", lambda: {"O1": scenario("O1"), "O2": scenario("O2")})
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin: made by `make trial` -->\nold\n<!-- end -->\nafter\n")
    told = ["--directory", str(tmp_path), "--modes", "inbox", "--page", str(page)]
    monkeypatch.setattr("dejamq_lab.scenario.trial.page.made", lambda *_: "| table |")
    made.broken = {"O1-1"}
    assert trial_command.main(told) == 1
    made.broken = set()
    assert trial_command.main(told) == 1
    assert trial_command.main([*told, "--again"]) == 0
    assert trial_command.main([*told, "--audit-again"]) == 0
    assert made.played == ["O1-1", "O2-1", "O1-1"]
    assert made.audits == [["O2-1"], ["O1-1"], ["O1-1", "O2-1"]]
    assert page.read_text().split("\n\n") == [
        "before\n<!-- begin: made by `make trial` -->", "| table |", "<!-- end -->\nafter\n",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "hint"), [(None, "No such file"), ("a page", "no place for the table")])
def test_nothing_is_played_for_a_page_that_takes_no_table(
    tmp_path: Path, made: World, text: str | None, hint: str
) -> None:
    page = tmp_path / "page.md"
    if text:
        page.write_text(text)
    with pytest.raises(ConfigError, match=hint):
        trial_command.main(["--directory", str(tmp_path), "--page", str(page)])
    assert made.played == []


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), (3, 3), (9, 4)])
def test_so_many_runs_are_played_side_by_side_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int, most: int
) -> None:
    world = World(monkeypatch)
    found = trial([scenario("O1"), scenario("O2")], [1, 2], tmp_path, print, jobs=jobs)
    assert world.most == most
    assert len({outcome.directory for outcome in found}) == 4


def test_what_cannot_be_played_in_one_process_is_played_on_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World(monkeypatch)
    frozen = scenario("R6", steps=[steps.Pause(who="p"), steps.Resume(who="p")])
    trial([scenario("O1"), scenario("O2"), frozen], [1], tmp_path, print, kind=Kind.INPROC, kinds={"O2": Kind.PROCESS})
    assert sorted(world.kinds) == [("O1", "inproc"), ("O2", "process"), ("R6", "process")]
