"""Locks, clocks and queues that came back: each cause accepted, rejected, and undetermined without its evidence."""

import pytest
from told import Told

CERTAIN = {
    "r7": ("R7", "b"),
    "r7-without-a-result": ("R7", "b"),
    "r8": ("R8", "b"),
    "o9-although-it-came-back": ("O9", "b"),
    "r9": ("R9", "2"),
    "r9-although-the-clock-jumped-a-little": ("R9", "2"),
    "r10": ("R10", "2"),
    "r10-after-the-queue-was-given-up": ("R10", "2"),
    "o9-although-the-broker-was-started-again": ("O9", "b"),
    "r11": ("R11", "2"),
    "o9-with-a-lock-that-was-not-forced": ("O9", "b"),
    "o9-although-the-lock-was-forced": ("O9", "b"),
    "r12-under-a-lock": ("R12", "2"),
    "r12-at-the-owner": ("R12", "b"),
    "r12-of-a-member": ("R12", "2"),
    "r6-without-a-jump": ("R6", "2"),
    "r13": ("R13", "2"),
    "r13-by-lists-that-overlap": ("R13", "2"),
}
UNDETERMINED = {
    "r7-with-a-hole": "seq gap",
    "r8-with-a-hole": "seq gap",
    "r9-without-the-lock": "no LOCK by which r9-without-the-lock-c2 opened the queue",
    "no-r9-when-the-handler-had-ended": "two owners whose rounds agree",
    "r10-with-a-hole": "seq gap",
    "no-r10-when-the-lock-had-ended": "two owners whose rounds agree",
    "no-r13-when-one-was-given-its-queues": "no ASSIGN of no-r13-when-one-was-given-its-queues-c1 after",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_a_queue_that_moved_under_a_handler_gets_its_cause(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.stage) == CERTAIN[name], finding
    assert (finding.identity, finding.certainty, finding.missing) == ("I1", "certain", None)


@pytest.mark.parametrize("name", UNDETERMINED)
def test_without_an_evidence_line_it_stays_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in (finding.missing or ""), finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


@pytest.mark.parametrize(("name", "events", "trigger"), [
    ("r7", ["PQ_DROP", "PQ_OPEN"], "r7-c1 had not pulled for longer than it may"),
    ("r9", ["LOCK", "LOCK"], "r9-c1 had not renewed its lock for 61000 ms"),
    ("r10", ["LOCK", "LOCK"], "r10-broker-0 did not know the lock that r10-c1 had from r10-broker-0"),
    ("r11", ["LOCK", "UNLOCK", "LOCK"], "r11-c1 gave its lock back while its handler ran"),
    ("r12-under-a-lock", ["CLOCK", "LOCK", "LOCK"], "the clock of r12-under-a-lock-broker-0 jumped by 50000 ms"),
    ("r13", ["ASSIGN", "ASSIGN"], "r13-c1 and r13-c2 chose the queue themselves"),
])  # fmt: skip
def test_the_proof_has_the_lines_that_decided(told: Told, name: str, events: list[str], trigger: str) -> None:
    finding = told.only(name)
    assert finding.trigger == trigger
    assert [line.event for line in finding.evidence if line.event in events] == events
