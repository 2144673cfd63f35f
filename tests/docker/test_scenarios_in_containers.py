"""The scenarios that people run on processes, from the same text, on containers: killed, frozen, out of the network."""

import pytest
from compose_cluster import IMAGE
from dejamq_lab.machines.engine import docker
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.seeds import AS_WRITTEN
from dejamq_lab.scenario.script.text import catalogue
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_lab.scenario.trial.trial import trial

PLAYED = ("O1", "O3", "P1-kill", "R1", "R2", "R6")
pytestmark = [pytest.mark.docker, pytest.mark.spark, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def outcomes(image: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, ScenarioOutcome]:
    """By id of the scenario, audited as one history."""
    known, directory = catalogue(), tmp_path_factory.mktemp("contained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEJAMQ_IMAGE", IMAGE)
        found = trial([known[name] for name in PLAYED], [AS_WRITTEN], directory, print, jobs=2, kind=Kind.COMPOSE)
    return {outcome.scenario: outcome for outcome in found}


@pytest.mark.parametrize("name", PLAYED)
def test_the_audit_names_what_was_done_to_containers(outcomes: dict[str, ScenarioOutcome], name: str) -> None:
    assert outcomes[name].problems == []


def test_nothing_is_left_of_them(outcomes: dict[str, ScenarioOutcome]) -> None:
    assert outcomes
    shown = docker("container", "ls", "--all", "--format", "{{.Names}}") + docker(
        "network", "ls", "--format", "{{.Name}}"
    )
    assert not [name for name in shown.split() if name.startswith("dejamq-lab-")]
