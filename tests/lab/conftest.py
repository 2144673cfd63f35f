"""One trial for all tests of scenarios: starting Spark takes longer than playing."""

import pytest
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.stage.stages import Kind
from dejamq_lab.scenario.trial.trial import trial
from scenarios_played import ON_PROCESSES, SIDE_BY_SIDE, TRIES, scenarios


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ScenarioOutcome]:
    """By id of the scenario, as played on processes, or in this one where that is quicker, and audited together."""
    pytest.importorskip("pyspark", reason="the audit needs the extra 'analytics'")
    chosen, directory = list(scenarios()), tmp_path_factory.mktemp("trial")
    kinds = dict.fromkeys(ON_PROCESSES, Kind.PROCESS)
    found = trial(chosen, [1], directory, print, jobs=SIDE_BY_SIDE, kind=Kind.INPROC, kinds=kinds, tries=TRIES)
    again = trial(chosen, [1], directory, print)
    assert found == again, "what was played and audited is not done again"
    return {outcome.scenario: outcome for outcome in found}
