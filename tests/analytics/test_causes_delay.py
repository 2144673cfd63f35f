"""Delayed and timed messages delivered again after a crash (B1, B4), and dead letters that were sent again (L7)."""

import pytest
from told import Told

UNDETERMINED = {
    "b1-after-a-clean-stop": "delivered again although the broker ended cleanly",
    "b1-without-the-restart": "no BOOT of b1-without-the-restart-broker-0 with boot id b1withouttherestartsecondstart",
    "b1-although-progress-was-written": "the progress written in line 5 of b1-although-progress-was-written-broker-0",
    "b1-within-one-start": "one start of a broker delivered a delayed message twice",
}


@pytest.mark.parametrize("name", ["b1", "b1-at-another-level", "b1-killed-while-progress-was-written"])
def test_a_delayed_message_delivered_before_and_after_a_crash_is_b1_with_both_records(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.kind, finding.identity, finding.cause, finding.stage) == ("delivered twice", "I2", "B1", "delay")
    assert (finding.expected, finding.certainty, finding.missing) == (False, "certain", None)
    events = [line.event for line in finding.evidence]
    assert events == ["PROGRESS_FLUSH", "APPEND", "BOOT", "APPEND", "DELIVER", "DELIVER"]
    assert [finding.first.queue_offset, finding.second.queue_offset] == [0, 1]
    assert "from 3:6 of the schedule topic" in finding.evidence[1].summary


def test_a_second_copy_that_nobody_got_is_told_as_stored_twice(told: Told) -> None:
    finding = told.only("b1-undelivered")
    assert (finding.kind, finding.cause) == ("stored twice", "B1")


@pytest.mark.parametrize("name", UNDETERMINED)
def test_without_a_crash_or_its_evidence_a_second_delivery_of_the_broker_stays_undetermined(
    told: Told, name: str
) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.expected) == (None, False)


@pytest.mark.parametrize(
    "name",
    [
        "b4", "b4-of-a-slot-in-work", "b4-of-a-message-that-came-late", "b4-told-by-the-next-start",
        "b4-in-another-slot",
    ],
)  # fmt: skip
def test_a_timed_message_delivered_before_and_after_a_crash_is_b4_with_both_records(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.kind, finding.identity, finding.cause, finding.stage) == ("delivered twice", "I2", "B4", "delay")
    assert (finding.expected, finding.certainty, finding.missing) == (False, "certain", None)
    assert [line.event for line in finding.evidence if line.event != "PROGRESS_LOAD"] == [
        "PROGRESS_FLUSH", "APPEND", "BOOT", "APPEND", "DELIVER", "DELIVER",
    ]  # fmt: skip
    assert finding.evidence[0].summary == "slots before 1700000000000, messages before 6"
    assert "from 1700000000000:6 of the timer topic" in finding.evidence[1].summary


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("b4-after-a-clean-stop", "although the broker ended cleanly"),
        ("b4-although-progress-was-written", "the progress written in line"),
        ("b4-although-the-next-start-knew", "it had read a later progress"),
    ],
)
def test_a_timed_message_that_no_lost_progress_explains_stays_undetermined(told: Told, name: str, missing: str) -> None:
    finding = told.only(name)
    assert missing in finding.missing
    assert finding.cause is None


def test_of_two_retry_records_the_one_that_the_handler_asked_for_is_l1_and_the_brokers_is_b1(told: Told) -> None:
    asked, doubled = told.of("b1-of-a-retry")
    assert (asked.cause, asked.expected) == ("L1", True)
    assert (doubled.cause, doubled.expected, doubled.stage) == ("B1", False, "delay")
    assert [line.event for line in doubled.evidence].count("APPEND") == 2


@pytest.mark.parametrize("name", ["l7-to-the-group", "l7-to-the-topic"])
def test_a_dead_letter_that_was_sent_again_was_asked_for_by_an_operator(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.identity, finding.cause, finding.expected) == ("I2", "L7", True)
    assert [line.event for line in finding.evidence] == ["DELIVER", "APPEND", "DELIVER"]
    assert "7F00000100002A9F0000000000000001" in finding.trigger


def test_a_retry_that_the_consumer_made_besides_the_brokers_is_b11_and_the_other_one_l1(told: Told) -> None:
    asked, doubled = told.of("b11")
    assert (asked.cause, asked.expected) == ("L1", True)
    assert (doubled.cause, doubled.expected, doubled.missing) == ("B11", False, None)
    assert [line.event for line in doubled.evidence] == ["SENDBACK", "APPEND", "SENDBACK", "APPEND", "DELIVER"]
    assert doubled.trigger == "the send-back ended indefinite although it was stored"


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("b11-without-the-send-back", "no SENDBACK by rpc of delivery 1"),
        ("b11-without-the-fallback", "more retry records than requests"),
        ("b11-without-the-append", "more retry records than requests"),
    ],
)
def test_of_two_retries_without_an_evidence_line_one_was_asked_for_and_one_is_undetermined(
    told: Told, name: str, missing: str
) -> None:
    asked, doubled = told.of(name)
    assert (asked.cause, asked.expected) == ("L1", True)
    assert (doubled.cause, doubled.certainty) == (None, "undetermined")
    assert missing in doubled.missing


def test_a_retry_that_only_the_consumer_made_was_asked_for(told: Told) -> None:
    finding = told.only("b11-was-not-stored-by-the-broker")
    assert (finding.cause, finding.expected) == ("L1", True)
