"""What handlers and designs ask for (L2 to L6, L8, L9): accepted, told from their neighbours, and undetermined."""

import pytest
from told import Told

ASKED_FOR = {
    "l3": ("L3", "1"),
    "l3-by-the-next-owner": ("L3", "b"),
    "l3-of-a-failure-by-the-next-owner": ("L3", "b"),
    "l3-not-l4-without-a-dead-letter": ("L3", "1"),
    "l6": ("L6", "1"),
    "l6-of-the-one-that-rolled-back": ("L6", "1"),
    "l6-never-committed": ("L6", "b"),
    "members-of-a-broadcasting-group": ("L8", "model"),
    "another-group": ("L9", "model"),
    "l9-of-two-groups": ("L9", "model"),
    "l9-to-two-topics": ("L9", "send"),
    "b12-by-the-next-owner": ("B12", "b"),
    "b12-whether-or-not-it-was-taken-back": ("B12", "b"),
    "l2-not-where-the-handler-said-what-was-done": ("L1", "retry"),
    "l5-of-a-handler-in-whose-name-its-client-asked": ("L5", "retry"),
}
NOT_ASKED_FOR = {
    "l4": ("L4", "1"),
    "l5": ("L5", "b"),
    "l5-in-its-own-queue": ("L5", "1"),
    "o10-that-interrupts-its-handler": ("O10", "b"),
    "o1-although-it-was-committed-later": ("O1", "d"),
}
UNDETERMINED = {
    "l2-without-the-result": "no RESULT of delivery 2, one of 2 given to the handler at once",
    "l9-to-two-topics-without-the-producer": "no SEND_TRY of message l9-to-two-topics-without-the-producer-key-3",
    "b12-without-the-send-back": "no successful SENDBACK of the first delivery",
    "l4-with-a-hole": "seq gap",
    "l5-with-a-hole": "seq gap",
}


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_the_handler_asked_for_is_expected(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.stage, finding.certainty, finding.expected) == (*ASKED_FOR[name], "certain", True)


@pytest.mark.parametrize("name", NOT_ASKED_FOR)
def test_what_it_did_not_ask_for_is_a_duplicate(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.stage, finding.certainty) == (*NOT_ASKED_FOR[name], "certain")
    assert not finding.expected


@pytest.mark.parametrize("name", UNDETERMINED)
def test_without_one_line_it_stays_undetermined(told: Told, name: str) -> None:
    finding = told.only(name)
    assert (finding.cause, finding.certainty) == (None, "undetermined")
    assert UNDETERMINED[name] in finding.missing, finding.missing


@pytest.mark.parametrize("name", ["l2", "l2-of-the-second-list-that-a-line-tells-of"])
def test_a_list_that_failed_as_a_whole_comes_again_as_a_whole(told: Told, name: str) -> None:
    found = told.of(name)
    assert [(row.cause, row.expected, row.trigger) for row in found] == [("L2", True, "handler: reconsume of 2")] * 2


def test_several_groups_are_one_finding_that_counts_the_messages(told: Told) -> None:
    finding = told.only("l9-of-two-groups")
    assert finding.trigger == "2 messages of orders also went to the group l9-of-two-groups"
    assert finding.consumer_group == "l9-of-two-groups-other"


def test_groups_that_share_no_message_are_no_finding(told: Told) -> None:
    assert told.of("l9-not-of-what-each-group-had-alone") == []


def test_what_one_member_of_a_broadcasting_group_has_twice_is_not_asked_for(told: Told) -> None:
    among, alone = sorted(told.of("l8-but-one-member-twice"), key=lambda row: not row.expected)
    assert (among.cause, among.expected) == ("L8", True)
    assert (alone.expected, alone.first.process, alone.second.process) == (False,) + ("l8-but-one-member-twice-c1",) * 2
