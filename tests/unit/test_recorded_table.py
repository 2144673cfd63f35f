"""The table of causes in recorded runs of a real RocketMQ, and how it is counted."""

from pathlib import Path

import recorded_table
from recorded_table import PAGE, Level, Run, Score


def test_the_table_is_of_todays_recorded_runs() -> None:
    assert recorded_table.main(["--check"]) == 0, "run: make recorded"


def test_a_table_that_lacks_a_run_is_told() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| O1 |")]
    assert not recorded_table.is_of_todays_runs(PAGE.read_text().replace(rows[-1], ""))


def test_a_cause_is_right_where_the_run_may_have_it_and_found_where_it_is_named() -> None:
    run = Run(Path("o1"), {"order-1": ["O1"], "*": ["O7"]}, {"A": "order-1", "B": "order-2"})
    level = Level()
    findings = [
        {"message_id": "A", "cause": "O1", "missing": None},
        {"message_id": "B", "cause": "O1", "missing": None},
        {"message_id": "B", "cause": None, "missing": "whether it was O7 or O8"},
    ]
    recorded_table.mark(run, findings, level)
    assert level.scores == {"O1": Score(1, 1, 2, 1, 0), "O7": Score(1, 0, 0, 0, 1)}
