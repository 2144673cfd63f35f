"""Offsets that their owner took along, or that no broker keeps: what each cause accepts, rejects, and misses."""

import pytest
from told import Told

CERTAIN = {
    "o11": ("O11", "f"),
    "o8-of-a-group-without-locks": ("O8", "f"),
    "o14": ("O14", "d"),
    "o14-after-an-older-persist": ("O14", "d"),
    "o16-by-the-successor": ("O16", "i"),
    "o12-beside-a-correction": ("O12", "i"),
    "o16-of-a-lite-consumer": ("O16", "j"),
    "o18": ("O18", "d"),
    "o18-with-an-older-commit": ("O18", "d"),
    "o1-of-a-lite-consumer": ("O1", "d"),
    "o19": ("O19", "i"),
    "o20-without-the-file": ("O20", "g"),
    "o20-by-the-backup": ("O20", "g"),
    "o20-by-an-older-file": ("O20", "g"),
    "o20-before-the-file-was-written": ("O20", "d"),
}
UNDETERMINED = {
    "o11-without-the-unlock": "no UNLOCK of o11-without-the-unlock-c1 before o11-without-the-unlock-c2",
    "o11-without-the-next-lock": "no LOCK granted to o11-without-the-next-lock-c2",
    "o14-with-a-hole": "seq gap",
    "no-o14-as-it-was-persisted": "stage f, the same consumer opened the queue again",
    "o16-with-a-hole-at-the-broker": "seq gap of o16-with-a-hole-at-the-broker-broker-0",
    "o18-with-a-hole": "seq gap",
    "o19-with-a-hole": "seq gap",
    "sought-while-another-has-it": "no ASSIGN of sought-while-another-has-it-c1 in force",
    "o20-without-the-load": "no OFF_LOAD of o20-without-the-load-c1",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_an_offset_that_was_not_there_with_all_its_evidence_gets_its_cause(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.stage) == CERTAIN[name], finding
    assert (finding.identity, finding.certainty, finding.expected) == (
        "I1",
        "certain",
        False,
    )


@pytest.mark.parametrize("name", UNDETERMINED)
def test_an_offset_without_an_evidence_line_stays_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert UNDETERMINED[name] in finding.missing, finding
    assert (finding.cause, finding.certainty) == (None, "undetermined")


@pytest.mark.parametrize(("name", "event", "summary"), [
    ("o11", "UNLOCK", "by its owner"),
    ("o16-by-the-successor", "PULL", "asked for 7, sent to 6"),
    ("o20-by-the-backup", "OFF_LOAD", "1 offsets from bak"),
])  # fmt: skip
def test_the_line_that_decides_is_among_the_evidence(told: Told, name: str, event: str, summary: str) -> None:
    assert (event, summary) in {(line.event, line.summary) for line in told.only(name).evidence}


@pytest.mark.parametrize(("name", "trigger"), [
    ("o18", "o18-c1 dropped the queue (reassigned), and the last offset sent was none"),
    ("o19", "o19-c2 itself began at 6"),
    ("o20-without-the-file", "o20-without-the-file-c1 found no file of offsets"),
    ("o16-by-the-successor", "o16-by-the-successor-c2 asked for 7 and was sent to 6"),
])  # fmt: skip
def test_what_set_it_off_is_said_in_words(told: Told, name: str, trigger: str) -> None:
    assert told.only(name).trigger == trigger
