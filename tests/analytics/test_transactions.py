"""P7 and P8: with all their evidence, told apart, left undetermined where a line is missing, and never invented."""

import pytest
from told import Told

CERTAIN = {
    "p7-late": ("P7", "the program's own commit and the answer to a check"),
    "p7-two-checks": ("P7", "the answers to two checks"),
    "p7-same-commit": ("P7", "one commit came twice"),
    "p7-half-twice": ("P7", "the producer's second try stored the half message twice"),
    "p7-undelivered": ("P7", "the program's own commit and the answer to a check"),
    "p7-after-a-clean-restart": ("P7", "the program's own commit and the answer to a check"),
    "p7-asked-before-the-crash": ("P7", "the program's own commit and the answer to a check"),
    "p7-although-marked": ("P7", "one commit came twice"),
    "p8": ("P8", "p8-broker-0 was killed before it had marked the half message"),
    "p8-of-a-check": ("P8", "p8-of-a-check-broker-0 was killed before it had marked the half message"),
    "p8-after-a-power-loss": ("P8", "p8-after-a-power-loss-broker-0 was killed before it had marked the half message"),
    "p7-while-a-slave-crashed": ("P7", "the program's own commit and the answer to a check"),
    "p7-after-a-slave-with-the-mark": ("P7", "one commit came twice"),
    "p8-of-a-slave-without-the-mark": (
        "P8",
        "a slave of p8-of-a-slave-without-the-mark-broker-0 became the master without the mark",
    ),
    "p8-of-a-slave-after-a-clean-restart": (
        "P8",
        "a slave of p8-of-a-slave-after-a-clean-restart-broker-0 became the master without the mark",
    ),
    "p5-in-two-transactions": ("P5", "the application sent the message in another transaction"),
}
UNDETERMINED = {
    "p8-with-a-hole": "seq gap of p8-with-a-hole-broker-0",
    "p8-at-level-audit": "the last lines of p8-at-level-audit-broker-0",
    "tx-without-an-end": "no END_TRANSACTION of request 2 by tx-without-an-end-broker-0",
    "p5-without-the-second-half": "no APPEND of the half message 1:1000 of p5-without-the-second-half-key-1",
    "p8-without-the-half-that-was-asked-about": "no APPEND of the half message 1:1000 of p8-without-the-half-that-was",
    "tx-without-any-half": "no APPEND of the half message 0:0 of tx-without-any-half-key-1",
    "tx-halves-of-an-unknown-producer": "no SEND_TRY of each half message of tx-halves-of-an-unknown-producer-key-1",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_second_commit_has_its_cause_and_how_it_came(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.trigger) == CERTAIN[name], finding
    assert (finding.identity, finding.stage, finding.certainty) == ("I2", "transaction", "certain")
    assert finding.kind == ("stored twice" if name == "p7-undelivered" else "delivered twice")


@pytest.mark.parametrize("name", CERTAIN)
def test_both_committed_records_are_in_the_evidence_with_the_words_they_came_by(told: Told, name: str) -> None:
    evidence = told.only(name).evidence
    committed = [line.summary for line in evidence if line.summary.startswith("committed")]
    assert [summary.rpartition(" ")[2] for summary in committed] == ["500000", "500001"]
    assert sum(line.event == "END_TRANSACTION" for line in evidence) == 2
    assert sum(line.event == "TX" for line in evidence) == 2


@pytest.mark.parametrize("name", UNDETERMINED)
def test_a_second_commit_without_an_evidence_line_stays_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


def test_a_transaction_that_is_asked_about_and_committed_once_is_no_finding(told: Told) -> None:
    assert told.of("tx-once") == []


def test_a_lost_mark_is_told_with_the_crash_and_the_question_after_it(told: Told) -> None:
    events = [line.event for line in told.only("p8").evidence]
    assert events == [
        "APPEND", "TX", "APPEND", "END_TRANSACTION", "BOOT", "APPEND", "TX", "APPEND", "END_TRANSACTION", "DELIVER",
        "DELIVER",
    ]  # fmt: skip
