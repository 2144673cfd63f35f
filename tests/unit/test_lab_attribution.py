"""The arithmetic of the table that says how well the audit names causes."""

from typing import Any

import pytest
from dejamq_lab.scenario.run import ScenarioOutcome
from dejamq_lab.scenario.script.text import Actor, ExpectedAudit, Scenario
from dejamq_lab.scenario.trial.attribution import Judged, causes, controls, ledger, unplayed, wrong


def scenario(name: str, **expect: Any) -> Scenario:
    return Scenario(
        id=name, title="t", happens="h", source="s", actors={"p": Actor(kind="producer", group="p")}, steps=[],
        expect=ExpectedAudit(**expect),
    )  # fmt: skip


def judged(one: Scenario, found: dict[str, int], asked: dict[str, int] | None = None, **more: Any) -> Judged:
    problems = more.pop("problems", [])
    verdict = {"causes": found, "expected_causes": asked or {}}
    return Judged(one, ScenarioOutcome(one.id, not problems, problems, verdict, [], 1.0, "", **more))


O1, O7 = scenario("O1", causes=("O1",)), scenario("O7", causes=("O7",), also=("O1",))


def test_recall_is_the_share_of_runs_with_the_cause_in_which_it_was_named() -> None:
    row = causes([judged(O1, {"O1": 5}), judged(O1, {}), judged(O1, {"O1": 1}), judged(O1, {"O1": 1})])[0]
    assert (row.cause, row.scenarios, row.runs, row.found, row.recall) == ("O1", ("O1",), 4, 3, 0.75)


def test_precision_counts_findings_and_what_a_fault_does_beside_is_right() -> None:
    rows = {row.cause: row for row in causes([judged(O7, {"O7": 6, "O1": 1}), judged(O1, {"O1": 3, "O7": 2})])}
    assert (rows["O1"].certain, rows["O1"].right, rows["O1"].precision) == (4, 4, 1.0)
    assert (rows["O7"].certain, rows["O7"].right, rows["O7"].precision) == (8, 6, 0.75)


def test_a_cause_that_no_scenario_has_is_a_row_without_recall() -> None:
    row = causes([judged(O1, {"O1": 1, "R2": 4})])[-1]
    assert (row.cause, row.runs, row.recall, row.certain, row.precision) == ("R2", 0, None, 4, 0.0)


def test_what_was_never_named_has_no_precision() -> None:
    row = causes([judged(O1, {})])[0]
    assert (row.recall, row.precision) == (0.0, None)


def test_what_was_asked_for_is_a_cause_like_others() -> None:
    row = causes([judged(scenario("L1", expected=("L1",)), {}, {"L1": 5})])[0]
    assert (row.cause, row.found, row.certain, row.right) == ("L1", 1, 5, 5)


def test_rows_stand_in_the_order_of_the_catalogue() -> None:
    every = [judged(scenario(name, causes=(name,)), {}) for name in ("R1", "O10", "L1", "O2", "B1", "P1")]
    assert [row.cause for row in causes(every)] == ["P1", "B1", "O2", "O10", "R1", "L1"]


def test_a_run_that_did_not_come_to_its_end_is_told_apart_and_counts_nowhere() -> None:
    broken = Judged(O1, ScenarioOutcome("O1", False, ["step 3, kill: it does not run"], {}, [], 0.0, ""))
    assert causes([broken]) == []
    assert ledger([broken]).runs == 0
    assert unplayed([broken]) == ["O1: step 3, kill: it does not run"]
    assert wrong([broken]) == []


@pytest.mark.parametrize(("problems", "clean"), [([], 2), (["R2 was blamed 4 times"], 1)])
def test_a_control_is_clean_when_nothing_was_wrong_with_its_run(problems: list[str], clean: int) -> None:
    healthy = scenario("healthy")
    row = controls([judged(healthy, {}), judged(healthy, {}, problems=problems), judged(O1, {})])
    assert [(one.scenario, one.runs, one.clean) for one in row] == [("healthy", 2, clean)]


def test_the_ledger_agrees_run_by_run() -> None:
    score = ledger([judged(O1, {}, double_effects=3), judged(O1, {}, double_effects=2, ledger_agrees=False)])
    assert score == (2, 1, 5)


def test_runs_that_differ_in_ids_only_went_wrong_in_the_same_way() -> None:
    said = "9 undetermined: the last 100 ms of {} (9); 2 findings have a single effect, among them delivery {}"
    bad = [
        judged(O1, {}, problems=[said.format(f"10.0.0.{number}@28#1795{number}", f"0a8f8{number}-1")])
        for number in range(2)
    ]
    assert wrong(bad) == [
        "O1: 9 undetermined: the last 100 ms of a client (9); 2 findings have a single effect (2 runs)"
    ]


def test_of_counts_that_differ_from_run_to_run_the_range_is_told() -> None:
    said = "O7 was not found; {} undetermined: the last lines of c1 (consumer-*-{}.jsonl line after {}) ({})"
    bad = [
        judged(O1, {}, problems=[said.format(count, boot, line, count)])
        for count, boot, line in ((200, "0ad33ab5872948c8", 12), (156, "1234567890123456", 14), (173, "a" * 16, 12))
    ]
    assert wrong(bad) == [
        "O1: O7 was not found; 156 to 200 undetermined: the last lines of c1 "
        "(consumer-*-*.jsonl line after 12 to 14) (156 to 200) (3 runs)"
    ]


def test_what_went_wrong_is_said_once_with_the_number_of_runs() -> None:
    bad = judged(O1, {}, problems=["O1 was not found"])
    assert wrong([bad, judged(O1, {"O1": 1}), bad]) == ["O1: O1 was not found (2 runs)"]
