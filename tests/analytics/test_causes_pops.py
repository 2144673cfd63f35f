"""Popped messages that came again: B6, B7, B9, L1, L10 and O17, each with the lines that prove it."""

import pytest
from told import Told

B6 = {
    "b6": "done 28 ms after its time was over",
    "b6-never-done": "not done within 30 ms",
    "b6-of-a-killed-consumer": "b6-of-a-killed-consumer-c1 ended with it in hand",
    "b6-renewed": "not done within 30 ms",
    "b6-shortened": "ms after its time was over",
    "b6-given-back-by-the-broker": "b6-given-back-by-the-broker-c1 ended with it in hand",
}
UNDETERMINED = {
    "b6-of-a-buffering-consumer": "the last lines of b6-of-a-buffering-consumer-c1",
    "b6-with-a-hole": "seq gap of b6-with-a-hole-c1",
    "b6-without-the-revive": "no REVIVE to offset 0 of %RETRY%b6-without-the-revive_orders",
    "b6-of-another-consumer": "no DELIVER of offset 6 in b6-of-another-consumer-c3",
    "l1-given-back-in-a-lost-line": "no CHANGE to pop time",
    "b9-of-an-acknowledgement-in-a-lost-line": "the last lines of b9-of-an-acknowledgement-in-a-lost-line-broker-0",
    "b9-although-nothing-was-lost": "revived although it was acknowledged",
    "b9-although-the-check-point-was-there": "popped twice although the broker had not forgotten the first time",
    "b9-without-the-first-pop": "no POP of offset 6 of orders",
    "l10-by-turns": "a group that pulled and popped by turns",
}


@pytest.mark.parametrize("name", B6)
def test_a_message_whose_time_was_over_is_b6_with_what_its_consumer_did(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.identity, finding.cause, finding.stage, finding.certainty) == ("I2", "B6", "pop", "certain")
    assert (finding.expected, finding.missing) == (False, None)
    assert B6[name] in finding.trigger
    events = [line.event for line in finding.evidence]
    assert [event for event in events if event in ("POP", "REVIVE", "DELIVER")] == [
        "POP",
        "DELIVER",
        "REVIVE",
        "DELIVER",
    ]


def test_a_late_acknowledgement_is_among_the_evidence(told: Told) -> None:
    events = [(line.event, line.summary) for line in told.only("b6").evidence]
    assert [event for event, _ in events] == ["POP", "DELIVER", "REVIVE", "ACK_TRY", "ACK", "DELIVER"]
    assert events[4][1] == "refused"


def test_a_message_that_its_consumer_had_called_done_in_time_is_b7(told: Told) -> None:
    finding = told.only("b7")
    assert (finding.cause, finding.certainty, finding.expected) == ("B7", "certain", False)
    assert "ACK_TRY" in [line.event for line in finding.evidence]
    assert finding.trigger == "b7-c1 said that it was done, and b7-broker-0 never heard it"


def test_a_message_that_was_given_back_was_asked_for(told: Told) -> None:
    finding = told.only("l1-given-back")
    assert (finding.cause, finding.certainty, finding.expected) == ("L1", "certain", True)
    assert [line.event for line in finding.evidence] == ["POP", "DELIVER", "CHANGE", "REVIVE", "DELIVER"]


def test_a_consumer_that_closes_with_a_message_in_hand_is_o10(told: Told) -> None:
    finding = told.only("o10-of-a-group-that-pops")
    assert (finding.cause, finding.certainty, finding.expected) == ("O10", "certain", False)
    assert finding.trigger == "o10-of-a-group-that-pops-c1 closed with it in hand"
    assert [line.event for line in finding.evidence] == ["POP", "DELIVER", "CHANGE", "REVIVE", "DELIVER"]


def test_an_acknowledgement_or_a_check_point_that_the_log_lost_is_b9(told: Told) -> None:
    acknowledged, popped = told.only("b9-of-an-acknowledgement"), told.only("b9")
    assert [(each.identity, each.cause, each.certainty) for each in (acknowledged, popped)] == [
        ("I2", "B9", "certain"), ("I1", "B9", "certain"),
    ]  # fmt: skip
    assert [line.event for line in acknowledged.evidence] == [
        "POP", "DELIVER", "ACK", "BOOT", "REVIVE", "ACK_TRY", "DELIVER",
    ]  # fmt: skip
    assert [line.event for line in popped.evidence] == ["POP", "DELIVER", "BOOT", "POP", "DELIVER"]


def test_a_group_that_was_sent_back_pops_again_as_asked(told: Told) -> None:
    finding = told.only("o17-of-a-group-that-pops")
    assert (finding.identity, finding.cause, finding.expected, finding.trigger) == ("I1", "O17", True, "reset to 5")
    assert [line.event for line in finding.evidence] == ["POP", "DELIVER", "OFF_SET", "POP", "DELIVER"]


def test_a_group_that_pulls_and_pops_at_once_is_l10(told: Told) -> None:
    finding = told.only("l10")
    assert (finding.identity, finding.cause, finding.certainty, finding.expected) == ("I1", "L10", "certain", False)
    assert finding.evidence[0].event == "PQ_OPEN"


@pytest.mark.parametrize("name", UNDETERMINED)
def test_what_lines_do_not_prove_of_pops_is_not_guessed(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty, finding.expected) == (None, "undetermined", False)
