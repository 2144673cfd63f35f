"""P2, P3, P6, P10 and B13: with all their evidence, told apart, and undetermined where a line is missing."""

import pytest
from told import Told

CERTAIN = {
    "p2": ("P2", "try 1 ended connection_lost"),
    "p2-in-a-run-with-others": ("P2", "try 1 ended connection_lost"),
    "p1-in-a-run-with-others": ("P1", "try 1 ended connection_lost"),
    "p1-by-another-calls-time-out": ("P1", "try 1 ended with its connection, which another call's time-out closed"),
    "p3": ("P3", "try 1 was stored, less durably than asked"),
    "p6": ("P6", "try 1 ended connection_lost"),
    "p6-not-durable-enough": ("P6", "try 1 was stored, less durably than asked"),
    "p10": ("P10", "try 1 ended timeout"),
    "b13": ("B13", "given back while its handler ran, which ended: timeout"),
    "b13-of-a-handler-that-never-ended": ("B13", "given back while its handler ran, which ended: never"),
}
UNDETERMINED = {
    "p2-without-an-answer": "no SEND_RESULT of try 1 by p2-without-an-answer-shop",
    "p3-without-its-second-try": "no SEND_TRY of request 2 by p3-without-its-second-try-shop",
    "p6-without-the-producer": "no journal of the producer with boot id p6withouttheproducershop",
    "p10-after-a-definite-refusal": "the first try ended refused, nothing to try again for",
    "b13-with-a-hole": "seq gap of b13-with-a-hole-c1",
    "b13-without-its-last-lines": "the last lines of b13-without-its-last-lines-c1",
    "b13-without-the-send-back": "no SENDBACK of a failed delivery of message b13-without-the-send-back-key-6",
    "b13-without-the-append": "no SENDBACK of a failed delivery of message b13-without-the-append-key-6",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_second_record_has_its_cause_and_what_set_it_off(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.trigger) == CERTAIN[name], finding
    assert (finding.identity, finding.certainty, finding.expected) == ("I2", "certain", False)


@pytest.mark.parametrize("name", UNDETERMINED)
def test_a_second_record_without_an_evidence_line_stays_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


@pytest.mark.parametrize("name", ["b13-of-a-handler-that-failed", "b13-of-a-handler-that-threw"])
def test_the_retry_of_a_handler_that_took_too_long_and_failed_is_what_it_asked_for(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.expected) == ("L1", True)


def test_both_tries_are_in_the_evidence_with_their_records_and_answers(told: Told) -> None:
    events = [line.event for line in told.only("p6").evidence]
    assert events == ["SEND_TRY", "APPEND", "SEND_RESULT", "SEND_TRY", "APPEND", "SEND_RESULT", "DELIVER", "DELIVER"]


def test_an_overdue_message_is_told_from_its_handler_to_the_retry(told: Told) -> None:
    events = [line.event for line in told.only("b13").evidence]
    assert events == ["DELIVER", "SENDBACK", "APPEND", "RESULT", "DELIVER"]
