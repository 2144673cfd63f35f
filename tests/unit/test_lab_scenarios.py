"""Scenarios as data: what can be read, what is refused, and how a run is judged."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_lab.scenario.judge import RunFacts, problems
from dejamq_lab.scenario.script.text import ExpectedAudit, catalogue, read
from dejamq_proto.codes import ConfigError

HOUSE = Path(__file__).parents[2]
LEAST = """
id = "X"
title = "t"
happens = "h"
source = "s"

[actors.p]
kind = "producer"
group = "p"

[[steps]]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.toml"
    path.write_text(text)
    return path


def test_every_scenario_of_the_catalogue_can_be_read_and_begins_with_the_healthy_one() -> None:
    found = catalogue()
    assert next(iter(found)) == "healthy"
    assert all(id_ == scenario.id for id_, scenario in found.items())


@pytest.mark.parametrize(("step", "said"), [
    ('do = "start"\nwho = "nobody"', "step 1: there is no 'nobody'"),
    ('do = "explode"\nwho = "p"', "explode"),
    ('do = "start"\nwho = "p"\nhard = true', "hard"),
    ('do = "send"\nwho = "p"', "count"),
    ('do = "cut"\nbetween = ["p", "broker-b"]', "broker-b"),
])  # fmt: skip
def test_a_step_that_cannot_be_is_refused_with_what_is_wrong(tmp_path: Path, step: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(written(tmp_path, LEAST + step))


def test_a_kind_of_actor_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'clown'"):
        read(written(tmp_path, LEAST.replace('"producer"', '"clown"') + 'do = "start"\nwho = "p"'))


def test_an_actor_knows_name_servers_only(tmp_path: Path) -> None:
    bound = LEAST.replace('group = "p"', 'group = "p"\nnamesrvs = ["broker-a"]')
    with pytest.raises(ConfigError, match="'broker-a', which is no name server"):
        read(written(tmp_path, bound + 'do = "start"\nwho = "p"'))


def told(**changed: Any) -> RunFacts:
    verdict: dict[str, Any] = {
        "causes": {}, "expected_causes": {}, "undetermined": 0, "undetermined_missing": {}, "anomalies": {}, "lost": 0,
    }  # fmt: skip
    ledger = {name: changed.pop(name, ()) for name in ("pairs", "effects", "doubles")}
    inbox, meant = changed.pop("inbox", False), changed.pop("meant", ())
    return RunFacts(verdict | changed, inbox=inbox, meant=meant, **ledger)


def test_a_clean_run_that_should_be_clean_has_no_problem() -> None:
    assert problems(ExpectedAudit(), told()) == []


def test_what_was_found_as_expected_is_no_problem() -> None:
    both = told(causes={"O1": 3, "O9": 1}, pairs={("a", "b")}, effects={"a", "b"}, doubles={"b"})
    assert problems(ExpectedAudit(causes=("O1",), also=("O9",)), both) == []


@pytest.mark.parametrize(("expected", "found", "said"), [
    (ExpectedAudit(causes=("O1",)), told(), "O1 was not found"),
    (ExpectedAudit(deliveries=20), told(deliveries=21), "21 deliveries instead of 20"),
    (ExpectedAudit(), told(causes={"R2": 4}), "R2 was blamed 4 times"),
    (ExpectedAudit(), told(expected_causes={"L1": 1}), "L1 was taken for expected"),
    (ExpectedAudit(expected=("L1",)), told(), "L1 was not among"),
    (ExpectedAudit(), told(undetermined=2, undetermined_missing={"no OFF_GET": 2}), "2 undetermined: no OFF_GET (2)"),
    (ExpectedAudit(), told(lost=1), "1 messages are lost"),
    (ExpectedAudit(never=("unseen",)), told(anomalies={"unseen": 2}), "2 unseen"),
    (ExpectedAudit(), told(doubles={"b"}, effects={"a", "b"}, pairs={("a", "b")}, inbox=True), "in spite of the inbox"),
    (ExpectedAudit(anomalies=("offset_regression",)), told(), "no anomaly offset_regression"),
    (ExpectedAudit(), told(doubles={"b"}, effects={"a", "b"}), "1 double effects in the ledger are no finding"),
    (ExpectedAudit(), told(pairs={("a", "b")}, effects={"a", "b"}), "1 findings have a single effect"),
])  # fmt: skip
def test_each_disagreement_is_a_problem_in_words(expected: ExpectedAudit, found: RunFacts, said: str) -> None:
    assert any(said in problem for problem in problems(expected, found))


def test_an_inbox_does_not_hide_what_each_topic_is_meant_to_have() -> None:
    both = {"pairs": {("a", "b")}, "effects": {"a", "b"}, "doubles": {"b"}, "inbox": True}
    assert problems(ExpectedAudit(also=("any",)), told(expected_causes={"L9": 1}, meant={"a", "b"}, **both)) == []
    assert problems(ExpectedAudit(also=("any",)), told(expected_causes={"L9": 1}, **both)) != []


def test_where_any_cause_may_be_none_is_a_problem_and_what_is_left_open_is() -> None:
    found = told(causes={"O1": 3}, expected_causes={"L1": 1}, undetermined=1, undetermined_missing={"no OFF_GET": 1})
    assert problems(ExpectedAudit(also=("any",)), found) == ["1 undetermined: no OFF_GET (1)"]


def test_a_first_delivery_without_effect_makes_no_problem() -> None:
    assert problems(ExpectedAudit(causes=("O9",)), told(causes={"O9": 1}, pairs={("a", "b")}, effects={"b"})) == []


def test_which_effect_came_second_is_for_the_ledger_to_say() -> None:
    late = told(causes={"O9": 1}, pairs={("a", "b")}, effects={"a", "b"}, doubles={"a"})
    assert problems(ExpectedAudit(causes=("O9",)), late) == []


def test_the_scenario_that_the_page_shows_is_the_one_of_the_catalogue() -> None:
    page = (HOUSE / "docs" / "lab.md").read_text()
    shown = page.split("```toml\n")[1].split("```")[0]
    assert shown == (HOUSE / "lab/dejamq_lab/scenario/script/catalogue/O3.toml").read_text()
