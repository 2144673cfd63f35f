"""At level ``audit`` a killed process takes its last lines along, and lines of deliveries are late. Less is named then,
and nothing else.
"""

import pytest
from tails import turned
from told import Told

CERTAIN = {
    "o14-at-level-audit": "O14",
    "b1-told-by-the-next-start": "B1",
    "b2-told-by-the-slave": "B2",
    "o9-of-a-queue-that-came-back": "O9",
    "r8-at-level-audit": "R8",
}
UNDETERMINED = {
    "r11-with-late-lines": "whether the handler of r11-with-late-lines-c1 had ended when",
    "r9-with-late-lines": "whether the handler of r9-with-late-lines-c1 had ended when",
    "r10-of-a-broker-that-lost-its-lines": "no LOCK by which r10-of-a-broker-that-lost-its-lines-c1 held the queue",
    "l6-with-its-commit-lost": "the last 100 ms of l6-with-its-commit-lost-c1",
    "o17-just-before-a-late-line": "whether o17-just-before-a-late-line-c1 delivered it before the offset was set to 3",
    "o3-whose-first-start-lost-all-lines": "an earlier start of o3-whose-first-start-lost-all-lines-broker-0",
    "o3-whose-crash-nobody-told": "an earlier start of o3-whose-crash-nobody-told-broker-0",
    "o5-without-the-slave": "no BOOT of the slave that became the master of o5-without-the-slave-broker-0",
    "b1-of-a-buffering-broker": "the last lines of b1-of-a-buffering-broker-broker-0",
    "b1-although-the-next-start-knew": "it had read a later progress",
    "b1-with-a-hole": "seq gap of b1-with-a-hole-broker-0",
    "b2-of-a-buffering-slave": "the last lines of b2-of-a-buffering-slave-slave-1",
    "b2-without-the-slave": "no BOOT of the slave that became the master of b2-without-the-slave-broker-0",
    "o8-of-two-at-once": "which came first, the delivery in o8-of-two-at-once-c1 or in o8-of-two-at-once-c2",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_what_is_there_is_enough(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.certainty, finding.missing) == (CERTAIN[name], "certain", None), finding


@pytest.mark.parametrize("name", UNDETERMINED)
def test_what_may_be_among_the_lost_lines_is_not_guessed(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.certainty, finding.expected) == (None, "undetermined", False), finding
    assert UNDETERMINED[name] in finding.missing


def test_no_tail_that_is_lost_turns_one_certain_cause_into_another(told: Told) -> None:
    """One tail of each history; ``prove_lost_tails.py`` asks for all of them."""
    assert turned(told) == []
    cut = [row for row in told if "-cut-" in row.message_id]
    assert len([row for row in cut if row.cause]) > 20, "others do not matter"
    assert len([row for row in cut if row.cause is None]) > 20, "and these did"
