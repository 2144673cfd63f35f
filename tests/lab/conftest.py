"""One trial for all tests of scenarios: starting Spark takes longer than playing."""

import pytest
from dejamq_lab.scenario.run import Outcome
from dejamq_lab.scenario.text import catalogue
from dejamq_lab.scenario.trial import trial
from scenarios_played import PLAYED


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """By id of the scenario, as played on processes and audited."""
    pytest.importorskip("pyspark", reason="the audit needs the extra 'analytics'")
    known = catalogue()
    directory = tmp_path_factory.mktemp("trial")
    found = trial([known[name] for name in PLAYED], [1], directory, print)
    again = trial([known[name] for name in PLAYED], [1], directory, print)
    assert found == again, "what was played and audited is not done again"
    return {outcome.scenario: outcome for outcome in found}
