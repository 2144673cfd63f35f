"""Worlds that a seed makes up, their reduction by a judge that is none, and how they are kept."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from dejamq_lab.explore import hunt as hunt_module
from dejamq_lab.explore.chaos import chaos
from dejamq_lab.explore.hunt import AT_ONCE, HuntOptions, hunt, kinds_of
from dejamq_lab.explore.reduce import reduced
from dejamq_lab.explore.world import LOST_CALLS, TRANSACTIONS, World, world
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.text import Scenario, catalogue, check, read
from dejamq_lab.scenario.script.written import written

HOUSE = Path(__file__).parents[2]
WORLDS = [world(seed, number) for seed in (1, 2) for number in range(60)]
CHAOS = [chaos(seed, number, units=10) for seed in (1, 2) for number in range(20)]
ENDED_BY = {
    steps.Kill: (steps.Restart, steps.Start), steps.Terminate: (steps.Restart, steps.Start),
    steps.Close: (steps.Start,), steps.Pause: (steps.Resume,), steps.CutStep: (steps.Heal,),
    steps.FailpointStep: (steps.FailpointStep,), steps.Delay: (steps.Heal,), steps.Isolate: (steps.Rejoin,),
    steps.DiskStep: (steps.DiskStep,), steps.ClockStep: (steps.ClockStep,),
}  # fmt: skip


def test_the_same_seed_makes_the_same_world_and_another_number_another_one() -> None:
    assert [world(1, number) for number in range(5)] == [world(1, number) for number in range(5)]
    assert len({repr(each) for each in WORLDS}) == len(WORLDS)


def test_every_world_is_a_scenario_that_can_be_played_also_with_any_unit_left_out() -> None:
    for each in WORLDS + CHAOS:
        check(each.scenario())
        for left_out in range(len(each.units)):
            check(each.scenario([*each.units[:left_out], *each.units[left_out + 1 :]]))


def test_every_unit_ends_what_it_began() -> None:
    for each in WORLDS + CHAOS:
        for unit in each.units:
            healed = {id(step) for step in unit if isinstance(step, steps.DiskStep) and not step.percent}
            healed |= {id(step) for step in [step for step in unit if isinstance(step, steps.ClockStep)][1:]}
            for place, step in enumerate(unit):
                if type(step) in ENDED_BY and getattr(step, "terms", "") != "off" and id(step) not in healed:
                    after = unit[place + 1 :]
                    assert any(type(one) in ENDED_BY[type(step)] and one.names() == step.names() for one in after), unit


def test_all_kinds_of_faults_are_made_up() -> None:
    made = {type(step) for each in WORLDS for unit in each.units for step in unit}
    assert made >= set(ENDED_BY) - {steps.DiskStep, steps.ClockStep}
    assert {(each.frame.cluster.brokers, each.frame.cluster.slaves) for each in WORLDS} == {(1, 0), (1, 1), (2, 0)}
    assert any(actor.settings.get("ordered") for each in WORLDS for actor in each.frame.actors.values())


def test_chaos_has_faults_of_every_kind_and_a_minute_to_get_over_each() -> None:
    made = {type(step) for each in CHAOS for unit in each.units for step in unit}
    assert made >= set(ENDED_BY) - {steps.Close, steps.FailpointStep, steps.Delay}
    for each in CHAOS:
        assert [unit[-1].kind for unit in each.units] == ["committed"] * 10
    assert [chaos(1, number, 3) for number in range(3)] == [chaos(1, number, 3) for number in range(3)]


def test_messages_are_sent_at_once_for_later_and_in_transactions_of_every_end() -> None:
    sends = [step for each in WORLDS for unit in each.units for step in unit if isinstance(step, steps.Send)]
    assert {(step.who, step.delay_level) for step in sends} == {("p", 0), ("p", 1), ("p", 2), ("t", 0)}
    told = [actor.transaction for each in WORLDS for actor in each.frame.actors.values() if actor.transaction]
    assert {(one.answer, one.check) for one in told} == set(TRANSACTIONS)


def test_the_calls_that_are_lost_are_calls_that_there_are() -> None:
    protocol = "".join(path.read_text() for path in (HOUSE / "proto/dejamq_proto").glob("*.proto"))
    assert [name for name in LOST_CALLS if f"rpc {name}(" not in protocol] == []


def needs(*wanted: int) -> tuple[list[int], object]:
    """A judge by whom a list fails that has all of these, and what it was asked."""
    asked: list[list[int]] = []

    def fails(candidates: Sequence[list[int]]) -> list[bool]:
        asked.extend(candidates)
        return [set(wanted) <= set(candidate) for candidate in candidates]

    return asked, fails  # type: ignore[return-value]


@pytest.mark.parametrize("wanted", [(3,), (0, 7), (2, 3, 6), (0, 1, 2, 3, 4, 5, 6, 7)])
def test_a_failure_is_reduced_to_the_units_that_it_needs_in_their_order(wanted: tuple[int, ...]) -> None:
    _, fails = needs(*wanted)
    assert reduced(range(8), fails, 1000) == list(wanted)  # type: ignore[arg-type]


def test_a_failure_that_comes_from_a_single_unit_is_asked_for_no_further() -> None:
    asked, fails = needs(5)
    assert reduced([5], fails, 1000) == [5]  # type: ignore[arg-type]
    assert asked == []


def test_no_more_is_replayed_than_allowed_and_what_is_left_still_fails() -> None:
    asked, fails = needs(0, 7)
    left = reduced(range(8), fails, 5)  # type: ignore[arg-type]
    assert len(asked) <= 5
    assert {0, 7} <= set(left)


def test_a_failure_that_never_comes_again_is_kept_whole() -> None:
    assert reduced(range(4), lambda candidates: [False] * len(candidates), 1000) == [0, 1, 2, 3]


def test_a_scenario_that_is_written_reads_as_the_same_one(tmp_path: Path) -> None:
    every: list[Scenario] = [*catalogue().values(), *(each.scenario() for each in WORLDS)]
    for number, scenario in enumerate(every):
        path = tmp_path / f"{number}.toml"
        path.write_text(written(scenario))
        assert read(path) == scenario, path.read_text()


def test_what_is_written_has_a_line_for_each_step() -> None:
    made: World = WORLDS[0]
    lines = written(made.scenario()).splitlines()
    assert sum(line.startswith("    { do = ") for line in lines) == len(made.scenario().steps)


def outcome(*problems: str, **verdict: object) -> ScenarioOutcome:
    return ScenarioOutcome("explored-1-0", not problems, list(problems), dict(verdict), [], 1.0, "")


def test_failures_of_one_kind_differ_in_ids_and_numbers_only() -> None:
    one = outcome("2 double effects in the ledger are no finding, among them delivery 0110c6b2a6774003-17")
    other = outcome("9 double effects in the ledger are no finding, among them delivery 9ac375ec55aa484b-3")
    assert kinds_of(one) == kinds_of(other) != kinds_of(outcome("1 messages are lost"))


def test_what_a_journal_with_holes_leaves_open_breaks_nothing() -> None:
    text = "1 undetermined: seq gap 5-6 of c1 (1)"
    assert kinds_of(outcome(text, journal_gaps=1, undetermined_missing={"seq gap 5-6 of c1": 1})) == set()
    assert kinds_of(outcome(text, journal_gaps=0, undetermined_missing={"seq gap 5-6 of c1": 1})) != set()
    assert (
        kinds_of(outcome("1 undetermined: stage d (1)", journal_gaps=1, undetermined_missing={"stage d": 1})) != set()
    )


def test_what_breaks_an_invariant_is_reduced_and_kept_as_a_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    culprit = world(3, 0).units[1]

    def judge(scenarios: Sequence[Scenario], *_: object, **__: object) -> list[ScenarioOutcome]:
        guilty = [all(step in scenario.steps for step in culprit) for scenario in scenarios]
        return [outcome("7 messages are lost") if each else outcome(undetermined=0) for each in guilty]

    monkeypatch.setattr(hunt_module, "trial", judge)
    hunted = hunt(
        HuntOptions(seed=3, minutes=0, directory=tmp_path / "runs", out=tmp_path / "found"), lambda text: None
    )
    assert hunted.played == AT_ONCE
    (found,) = hunted.found
    kept = read(found.path)
    opening, closing = world(3, 0).opening, world(3, 0).closing
    assert kept.steps == [*opening, *culprit, *closing]
    assert found.path.read_text().startswith("# # messages are lost\n")
