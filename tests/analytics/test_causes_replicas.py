"""Causes that masters and slaves bring: each with histories that it must accept, reject, and cannot tell."""

import pytest
from told import Told

CERTAIN = {
    "o5": ("I1", "O5", "h"),
    "o5-by-a-slave-in-the-masters-absence": ("I1", "O5", "h"),
    "o6": ("I1", "O6", "h"),
    "o6-told-by-the-slave-that-took-the-masters": ("I1", "O6", "i"),
    "o3-of-a-master-with-a-slave": ("I1", "O3", "g"),
    "b2": ("I2", "B2", "delay"),
}
UNDETERMINED = {
    "o5-although-it-was-copied": "stage h, the slave had copied the offset",
    "o5-with-a-hole-at-the-slave": "seq gap of o5-with-a-hole-at-the-slave-",
    "o5-without-the-promotion": "stage g, the offset was flushed",
    "o5-of-a-buffering-slave": "the last lines of o5-of-a-buffering-slave-",
    "o6-with-a-hole-at-the-master": "seq gap of o6-with-a-hole-at-the-master-",
    "o6-without-the-start-of-the-slave": "no BOOT of o6-without-the-start-of-the-slave-slave-1",
    "b2-although-progress-was-copied": "the progress written in line",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_history_with_all_its_evidence_gets_its_cause(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.identity, finding.cause, finding.stage) == CERTAIN[name], finding
    assert (finding.certainty, finding.missing) == ("certain", None)


@pytest.mark.parametrize("name", UNDETERMINED)
def test_a_history_without_an_evidence_line_stays_undetermined_and_names_it(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


def test_the_promotion_is_among_the_evidence(told: Told) -> None:
    for name in ("o5", "b2"):
        assert any(line.event == "REPLICA" for line in told.only(name).evidence)


def test_a_copy_that_is_gone_with_the_end_of_its_log_is_no_second_one(told: Told) -> None:
    assert told.of("stored-once-in-what-is-left") == []
