"""Each cause with a history that it must accept, histories that it must reject, and what is missing to tell."""

import re

import pytest
from told import Told

CERTAIN = {
    "o1": ("I1", "O1", "d"),
    "o1-in-flight": ("I1", "O1", "a"),
    "o1-after-an-older-persist": ("I1", "O1", "d"),
    "o1-with-a-hole-before": ("I1", "O1", "d"),
    "o7-on-a-clean-stop": ("I1", "O7", "c"),
    "o2": ("I1", "O2", "e"),
    "o2-with-a-mark-raised-by-a-send-back": ("I1", "O2", "e"),
    "o2-although-it-had-the-queue-again-later": ("I1", "O2", "e"),
    "o2-although-a-later-start-wrote-down-more": ("I1", "O2", "e"),
    "o8": ("I1", "O8", "f"),
    "o9": ("I1", "O9", "b"),
    "o10": ("I1", "O10", "b"),
    "o13": ("I1", "O13", "d"),
    "o13-although-it-committed-more-later": ("I1", "O13", "d"),
    "o17": ("I1", "O17", "i"),
    "o17-in-the-middle-of-a-handler": ("I1", "O17", "i"),
    "o17-by-a-seek": ("I1", "O17", "i"),
    "o1-long-after-a-reset": ("I1", "O1", "d"),
    "o1-and-a-reset-that-went-further": ("I1", "O1", "d"),
    "o3": ("I1", "O3", "g"),
    "o4": ("I1", "O4", "g"),
    "o12": ("I1", "O12", "i"),
    "o12-although-it-was-told-again": ("I1", "O12", "i"),
    "o8-as-it-was-lowered-before": ("I1", "O8", "f"),
    "o15-after-the-file-was-lost": ("I1", "O15", "g"),
    "o15-after-the-offsets-were-deleted": ("I1", "O15", "j"),
    "o16": ("I1", "O16", "i"),
    "local-retry": ("I1", "B12", "1"),
    "l1": ("I2", "L1", "retry"),
    "p1": ("I2", "P1", "send"),
    "p1-undelivered": ("I2", "P1", "send"),
    "p5": ("I2", "P5", "send"),
    "p5-by-business-key": ("I3", "P5", "send"),
}
UNDETERMINED = {
    "o2-without-the-broker": "no journal of o2-without-the-broker-broker-0",
    "o2-with-a-hole-at-the-broker": "seq gap of o2-with-a-hole-at-the-broker-broker-0",
    "o2-with-a-buffering-broker": "the last lines of o2-with-a-buffering-broker-broker-0",
    "o1-with-a-hole": "seq gap 5-6 of o1-with-a-hole-c1",
    "o1-at-level-audit": "the last 100 ms of o1-at-level-audit-c1, which ended without closing at journal level audit",
    "o1-without-the-second-opening": "no PQ_OPEN of the process queue that delivered second, in "
    "o1-without-the-second-opening-c2",
    "closed-without-persisting": "stage d",
    "forgotten-by-the-broker": "stage j",
    "o3-of-a-buffering-broker": "the last lines of o3-of-a-buffering-broker-broker-0",
    "o3-with-a-hole-at-the-broker": "seq gap of o3-with-a-hole-at-the-broker-broker-0",
    "o3-although-it-was-flushed": "stage g, the offset was flushed",
    "o3-without-the-load": "no OFF_LOAD of the start of o3-without-the-load-broker-0",
    "o8-with-a-hole-at-the-broker": "seq gap of o8-with-a-hole-at-the-broker-broker-0",
    "o12-by-its-own-hand": "stage i, the first owner itself",
    "o8-without-the-answer": "no OFF_GET of o8-without-the-answer-c2",
    "o9-with-a-hole": "seq gap",
    "had-the-queue-again-and-told-the-same-start-more": "stage f, the same consumer opened the queue again",
    "had-the-queue-again-after-it-was-refused": "stage f, the same consumer opened the queue again",
    "came-back-and-committed-more": "stage f, the same consumer opened the queue again",
    "refused-to-another": "stage d, sending the offset failed",
    "two-owners": "no ASSIGN of two-owners-c1 in force",
    "local-again-after-success": "stage 1",
    "sent-back-while-its-handler-ran": "no SENDBACK of a failed delivery",
    "l1-unrequested": "no SENDBACK of a failed delivery of message l1-unrequested-key-6",
    "p1-without-the-producer": "no journal of the producer with boot id p1withouttheproducershop",
    "p1-after-a-definite-refusal": "the first try ended refused",
    "p1-without-an-answer": "no SEND_RESULT of try 1 by p1-without-an-answer-shop",
    "p5-by-business-key-without-the-producer": "no SEND_TRY of message p5-by-business-key-without-the-producer-key-3",
}


NAMES_A_FILE = re.compile(r"\((consumer|producer|broker)-\*-[0-9a-z]+\.jsonl line (after )?\d")


@pytest.mark.parametrize("name", CERTAIN)
def test_a_history_with_all_its_evidence_gets_its_cause(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.identity, finding.cause, finding.stage) == CERTAIN[name], finding
    assert (finding.certainty, finding.missing) == ("certain", None)
    assert finding.evidence


@pytest.mark.parametrize("name", UNDETERMINED)
def test_a_history_without_an_evidence_line_stays_undetermined_and_names_it(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty, finding.expected) == (None, "undetermined", False)


def test_lines_that_are_missing_are_named_with_their_file(told: Told) -> None:
    gaps = [row for row in told if row.missing and row.missing.startswith(("seq gap", "the last"))]
    assert len(gaps) > 20
    assert [row.missing for row in gaps if not NAMES_A_FILE.search(row.missing)] == []


def test_a_history_without_duplicates_has_no_finding(told: Told) -> None:
    assert told.of("clean") == []


def test_a_done_message_above_an_unfinished_one_is_o7_and_the_unfinished_one_was_in_flight(told: Told) -> None:
    blocking, above = told.of("o7")
    assert (blocking.cause, blocking.first.result) == ("O1", None)
    assert (above.cause, above.first.result) == ("O7", "success")
    assert "offset 5 was unfinished" in above.trigger
    assert any("unfinished offset 5" in line.summary for line in above.evidence)


def test_a_second_retry_record_for_one_request_is_not_what_the_handler_asked_for(told: Told) -> None:
    asked, doubled = told.of("l1-twice-for-one-request")
    assert (asked.cause, asked.expected) == ("L1", True)
    assert (doubled.cause, doubled.expected) == (None, False)
    assert "more retry records than requests" in doubled.missing


def test_a_retry_that_was_asked_for_is_expected(told: Told) -> None:
    assert told.only("l1").expected
    assert told.only("local-retry").expected
    assert not told.only("o1").expected


def test_a_stored_copy_that_is_also_delivered_counts_once(told: Told) -> None:
    assert told.only("p1").kind == "delivered twice"
    assert told.only("p1-undelivered").kind == "stored twice"


def test_the_delivery_id_is_the_one_that_the_handler_saw(told: Told) -> None:
    finding = told.only("o1")
    assert finding.first.delivery_id == "o1c1-1"
    assert finding.second.delivery_id == "o1c2-1"
    assert finding.consumer_group == "o1"
    assert finding.first.offset_message_id == "7F00000100002A9F0000000000000258"


def test_the_evidence_tells_the_story_from_the_first_delivery_to_the_second(told: Told) -> None:
    told_events = [line.event for line in told.only("o1-after-an-older-persist").evidence]
    assert told_events == ["DELIVER", "RESULT", "RESULT", "PERSIST", "END", "OFF_SET", "OFF_GET", "PQ_OPEN", "DELIVER"]


def test_duplicates_are_the_sum_of_causes_and_undetermined(told: Told) -> None:
    verdict = told.verdict
    assert verdict.duplicates == sum(verdict.causes.values()) + verdict.undetermined
    assert verdict.undetermined == sum(verdict.undetermined_missing.values())
    assert verdict.expected_duplicates == sum(verdict.expected_causes.values()) == sum(row.expected for row in told)
    assert verdict.duplicates + verdict.expected_duplicates == len(list(told))
    assert verdict.unfinished_first == sum(
        not row.expected and row.kind == "delivered twice" and row.first.result is None for row in told
    )
    assert verdict.verdict == "findings"
    assert verdict.by_group["o7"]["causes"] == {"O1": 1, "O7": 1}


@pytest.mark.parametrize("name", ["o17", "o17-in-the-middle-of-a-handler", "o17-by-a-seek"])
def test_what_an_operator_or_the_program_asked_for_again_is_expected(told: Told, name: str) -> None:
    finding = told.only(name)
    assert finding.expected
    assert "to 3 by" in finding.trigger or "clone to 6" in finding.trigger or "sought" in finding.trigger
