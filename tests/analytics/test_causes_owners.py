"""Queues with two owners: each cause with a history that it accepts, those that it rejects, and what is missing."""

import pytest
from told import Told

CERTAIN = {
    "r1": ("R1", "2"),
    "r1-with-the-new-owner-faster": ("R1", "2"),
    "r2": ("R2", "2"),
    "r3": ("R3", "2"),
    "r4": ("R4", "2"),
    "r5": ("R5", "2"),
    "r6": ("R6", "2"),
    "r6-asleep-while-another-joined": ("R6", "2"),
    "r1-although-it-slept": ("R1", "2"),
    "r6-stopped-for-good": ("R6", "2"),
    "r6-cut-off": ("R6", "2"),
    "o8-by-a-route-that-was-old": ("O8", "f"),
    "o8-although-the-members-differed-for-a-moment": ("O8", "f"),
    "o8-although-a-round-was-under-way": ("O8", "f"),
    "o8-although-it-took-the-queue-again-when-it-was-alone": ("O8", "f"),
    "o8-although-the-members-changed-between-two-rounds": ("O8", "f"),
    "o8-although-a-third-member-left-between-two-rounds": ("O8", "f"),
    "o8-although-another-came-by-a-newer-route-and-went": ("O8", "f"),
    "r6-asleep-while-another-came-and-went": ("R6", "2"),
    "o8-although-it-was-paused-before": ("O8", "f"),
    "o8-with-the-new-owner-faster": ("O8", "f"),
    "o8-with-the-new-owner-faster-by-a-route-that-was-old": ("O8", "f"),
    "o9-although-the-members-differed-for-a-moment": ("O9", "b"),
}
UNDETERMINED = {
    "r1-with-a-hole": "seq gap",
    "r1-without-the-first-round": "no ASSIGN of r1-without-the-first-round-c1 in force",
    "r1-without-the-second-round": "no ASSIGN of r1-without-the-second-round-c2 in force",
    "r2-without-the-next-round": "no ASSIGN of r2-without-the-next-round-c1 after r2-without-the-next-round-c2",
    "a-round-under-way-and-none-after-it": "no ASSIGN of a-round-under-way-and-none-after-it-c1 after",
    "closed-before-it-saw-a-newer-route": "no ASSIGN of closed-before-it-saw-a-newer-route-c1 after",
    "closed-before-it-saw-one-of-another-strategy": (
        "no ASSIGN of closed-before-it-saw-one-of-another-strategy-c1 after"
    ),
    "o8-with-the-new-owner-faster-and-a-hole": "seq gap",
    "o8-with-the-new-owner-faster-and-a-hole-where-it-began": "seq gap",
    "two-owners-who-agree": "stage 2, two owners whose rounds agree",
    "no-r4-with-a-name-each": "no ASSIGN of no-r4-with-a-name-each-c1 after",
    "r6-cut-off-with-a-hole-at-the-broker": "seq gap of r6-cut-off-with-a-hole-at-the-broker-broker-0",
    "cut-off-from-one-broker-and-silent": "no ASSIGN of cut-off-from-one-broker-and-silent-c1 after",
    "two-owners-without-the-first-opening": "no PQ_OPEN of the process queue that delivered first",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_two_owners_with_all_their_evidence_get_their_cause(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.stage) == CERTAIN[name], finding
    assert (finding.identity, finding.certainty, finding.missing) == ("I1", "certain", None)


@pytest.mark.parametrize("name", UNDETERMINED)
def test_two_owners_without_an_evidence_line_stay_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


def test_the_proof_of_r1_is_what_two_name_servers_said_and_what_came_of_it(told: Told) -> None:
    finding = told.only("r1")
    lines = [(line.process, line.event, line.summary) for line in finding.evidence]
    assert ("r1-namesrv-1", "ROUTE", "told r1-c1 of the brokers a, b") in lines
    assert ("r1-namesrv-0", "ROUTE", "told r1-c2 of the brokers a") in lines
    assert [process for process, event, _ in lines if event == "ASSIGN"] == ["r1-c1", "r1-c2", "r1-c1"]
    assert finding.trigger == "the routes differ: a, b by r1-namesrv-1, a by r1-namesrv-0"


def test_the_proof_of_r2_is_what_two_brokers_said(told: Told) -> None:
    finding = told.only("r2")
    lists = [(line.process, line.summary) for line in finding.evidence if line.event == "MEMBER_LIST"]
    assert lists == [
        ("r2-broker-0", "told r2-c1 that the members are c1, c2"),
        ("r2-broker-1", "told r2-c2 that the members are c2"),
    ]
    assert finding.trigger == "the members differ: c1, c2 at r2-broker-0, c2 at r2-broker-1"


@pytest.mark.parametrize(("name", "event", "trigger"), [
    ("r4", "ASSIGN", "two processes are the client r4-c1"),
    ("r5", "STATE", "r5-c1 was suspended"),
    ("r6", "GAP", "r6-c1 did not run for 130000 ms"),
    ("r6-stopped-for-good", "FAULT", "was stopped (fault: pause)"),
    ("r6-cut-off", "MEMBER", "no broker had r6-cut-off-c1 as a member"),
])  # fmt: skip
def test_an_owner_that_could_not_know_is_told_with_its_line(told: Told, name: str, event: str, trigger: str) -> None:
    finding = told.only(name)
    assert trigger in finding.trigger
    assert event in {line.event for line in finding.evidence}


def test_the_proof_of_a_hand_over_that_was_overtaken_is_where_the_newer_owner_began(told: Told) -> None:
    finding = told.only("o8-with-the-new-owner-faster")
    began = [(line.process, line.summary) for line in finding.evidence if line.event == "PQ_OPEN"]
    assert ("o8-with-the-new-owner-faster-c2", "begins at 6 (broker)") in began
    assert finding.trigger == (
        "o8-with-the-new-owner-faster-c2 began at 6 (broker) before o8-with-the-new-owner-faster-c1 was done with it"
    )
