"""What a seed settles: the same seed the same scenario, and nothing that the scenario says itself."""

from pathlib import Path

import msgspec
import pytest
from dejamq_lab.scenario.script import steps
from dejamq_lab.scenario.script.seeds import AS_WRITTEN, varied
from dejamq_lab.scenario.script.text import Scenario, catalogue, check
from dejamq_lab.scenario.stage.stage import own_host

SCENARIOS = catalogue()
SEEDS = range(1, 4)


def told(scenario: Scenario) -> list[steps.Step]:
    """The steps without what a seed may add to them."""
    bare = [
        msgspec.structs.replace(step, pad=0) if isinstance(step, steps.Send) else step
        for step in scenario.steps
        if not isinstance(step, steps.Sleep)
    ]
    return sorted(bare, key=repr)


def test_seed_0_is_the_scenario_as_it_is_written() -> None:
    assert varied(SCENARIOS["O1"], AS_WRITTEN) is SCENARIOS["O1"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_seed_gives_the_same_scenario_each_time_and_another_seed_another_one(name: str) -> None:
    several = [varied(SCENARIOS[name], seed) for seed in SEEDS]
    assert several == [varied(SCENARIOS[name], seed) for seed in SEEDS]
    assert len({msgspec.json.encode(one) for one in several}) == len(SEEDS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_the_scenario_says_stands_whatever_the_seed(name: str) -> None:
    for seed in SEEDS:
        found = varied(SCENARIOS[name], seed)
        check(found)
        assert told(found) == told(SCENARIOS[name])
        assert (found.expect, found.cluster, found.settings) == (
            SCENARIOS[name].expect, SCENARIOS[name].cluster, SCENARIOS[name].settings
        )  # fmt: skip


def test_a_strike_comes_a_little_later_and_never_more_than_a_busy_machine_would_have_it() -> None:
    for seed in SEEDS:
        found = varied(SCENARIOS["O1"], seed)
        struck = next(at for at, step in enumerate(found.steps) if isinstance(step, steps.Kill))
        pause = found.steps[struck - 1]
        assert isinstance(pause, steps.Sleep)
        assert 0 <= pause.ms * found.cluster.time_scale <= 22


def test_seeds_put_now_the_one_and_now_the_other_consumer_first() -> None:
    firsts = set()
    for seed in range(1, 20):
        actors = varied(SCENARIOS["O1"], seed).actors
        firsts.add(min(("c1", "c2"), key=lambda name: str(actors[name].settings["client_ip"])))
    assert firsts == {"c1", "c2"}


def test_a_scenario_that_waits_for_a_place_of_a_queue_keeps_who_gets_it() -> None:
    at = steps.At(group="g", queue="broker-a:0", offset=3)
    scenario = msgspec.structs.replace(SCENARIOS["O1"], steps=[*SCENARIOS["O1"].steps, at])
    assert varied(scenario, 1).actors == SCENARIOS["O1"].actors


def test_an_actor_with_a_client_id_of_its_own_keeps_it() -> None:
    assert varied(SCENARIOS["R1"], 1).actors["c1"].settings == SCENARIOS["R1"].actors["c1"].settings


def test_clients_of_one_group_are_closed_in_the_order_that_is_written() -> None:
    two = [steps.Close(who="c1"), steps.Close(who="c2"), steps.Close(who="p")]
    scenario = msgspec.structs.replace(SCENARIOS["O1"], steps=two)
    assert all(varied(scenario, seed).steps == two for seed in SEEDS)


def test_runs_in_different_folders_have_addresses_of_their_own(tmp_path: Path) -> None:
    hosts = {own_host(tmp_path / f"O1-{seed}") for seed in range(50)}
    assert len(hosts) > 45
    assert own_host(tmp_path) == own_host(tmp_path)
    assert all(host.startswith("127.") and host.endswith(".1") for host in hosts)
