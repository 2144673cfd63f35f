"""The arithmetic of the verdict and of the exit status, without Spark."""

import pytest
from dejamq_analytics.report.verdict import Totals, Verdict, weigh
from dejamq_analytics.run import CANNOT_TELL, CLEAN, FAIL_ON, FOUND, exit_status
from pyspark.sql import Row


def counted(cause: str | None, n: int, *, expected: bool = False, unfinished: bool = False, group: str = "g") -> Row:
    missing = None if cause else "no journal of broker-a"
    return Row(consumer_group=group, cause=cause, missing=missing, expected=expected, unfinished=unfinished, n=n)


def verdict(*rows: Row, gaps: int = 0, kinds: dict[str, int] | None = None) -> Verdict:
    return weigh("run-1", Totals(messages=10, deliveries={"g": 12}, processes=3, journal_gaps=gaps), rows, kinds or {})


def test_duplicates_are_causes_and_undetermined_without_what_was_asked_for() -> None:
    told = verdict(
        counted("O1", 3), counted("O1", 2, unfinished=True), counted(None, 4), counted("L1", 5, expected=True)
    )
    assert (told.duplicates, told.undetermined, told.expected_duplicates, told.unfinished_first) == (9, 4, 5, 2)
    assert (told.causes, told.expected_causes) == ({"O1": 5}, {"L1": 5})
    assert told.undetermined_missing == {"no journal of broker-a": 4}
    assert told.by_group["g"]["duplicates"] == 9


@pytest.mark.parametrize(
    ("told", "word", "status"),
    [
        (verdict(), "clean", CLEAN),
        (verdict(counted("L1", 5, expected=True)), "clean", CLEAN),
        (verdict(counted("O1", 1), counted(None, 1), gaps=1), "findings", FOUND),
        (verdict(counted(None, 1)), "undetermined", CANNOT_TELL),
        (verdict(gaps=1), "undetermined", CANNOT_TELL),
        (verdict(kinds={"lost": 1}), "findings", FOUND),
        (verdict(kinds={"out_of_order": 1}), "findings", FOUND),
        (verdict(kinds={"unseen": 1, "offset_regression": 2}), "clean", CLEAN),
    ],
)
def test_findings_win_over_what_cannot_be_told_and_that_over_clean(told: Verdict, word: str, status: int) -> None:
    assert (told.verdict, exit_status(told, FAIL_ON)) == (word, status)


def test_the_exit_status_minds_only_what_it_was_told_to() -> None:
    told = verdict(counted("O1", 1), counted(None, 1), kinds={"lost": 1})
    assert exit_status(told, ()) == CLEAN
    assert exit_status(verdict(counted("O1", 1)), ("lost", "undetermined")) == CLEAN
    assert exit_status(verdict(counted(None, 1)), ("duplicates",)) == FOUND
    assert exit_status(told, ("undetermined",)) == CANNOT_TELL
