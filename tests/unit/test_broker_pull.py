"""What a pull is answered: RocketMQ's status table, tag filters, limits, commits on the way, and when it is held."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_parts import Parts, parts_in
from broker_pulls import AT, answered, asked, bodies, pull
from dejamq_broker.paths.pull import code_of
from dejamq_broker.store import ReadStatus
from dejamq_broker.tables.offsets import Position
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError, PermissionDenied


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        made.topics.update(TopicConfig("orders", 2, 2))
        yield made


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (ReadStatus.FOUND, 0, Code.SUCCESS),
        (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, Code.PULL_NOT_FOUND),
        (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 1, Code.PULL_OFFSET_MOVED),
        (ReadStatus.NO_MESSAGE_IN_QUEUE, 0, Code.PULL_NOT_FOUND),
        (ReadStatus.NO_MESSAGE_IN_QUEUE, 7, Code.PULL_OFFSET_MOVED),
        (ReadStatus.OFFSET_TOO_SMALL, 1, Code.PULL_OFFSET_MOVED),
        (ReadStatus.OFFSET_OVERFLOW_ONE, 5, Code.PULL_NOT_FOUND),
        (ReadStatus.OFFSET_OVERFLOW_BADLY, 9, Code.PULL_OFFSET_MOVED),
        (ReadStatus.OFFSET_FOUND_NULL, 3, Code.PULL_NOT_FOUND),
        (ReadStatus.NO_MATCHED_MESSAGE, 3, Code.PULL_RETRY_IMMEDIATELY),
        (ReadStatus.MESSAGE_WAS_REMOVING, 3, Code.PULL_RETRY_IMMEDIATELY),
    ],
)
def test_each_outcome_of_a_read_has_rocketmqs_code(status: ReadStatus, offset: int, code: Code) -> None:
    assert code_of(status, offset) is code


def test_every_outcome_of_a_read_has_a_code() -> None:
    assert all(code_of(status, 1) for status in ReadStatus if status is not ReadStatus.FOUND)


def test_messages_are_found_from_the_asked_offset_on(parts: Parts) -> None:
    parts.send("orders", b"a", b"b", b"c")
    answer = answered(parts, pull(1))
    assert answer.code == Code.SUCCESS
    assert bodies(answer) == [b"b", b"c"]
    assert (answer.next_offset, answer.min_offset, answer.max_offset) == (3, 0, 3)


def test_at_most_the_asked_number_of_messages_is_given(parts: Parts) -> None:
    parts.send("orders", b"a", b"b", b"c")
    answer = answered(parts, pull(0, max_messages=2))
    assert bodies(answer) == [b"a", b"b"]
    assert answer.next_offset == 2


def test_one_message_is_given_however_few_bytes_are_asked_for(parts: Parts) -> None:
    parts.send("orders", b"x" * 5000, b"y")
    assert bodies(answered(parts, pull(0, max_bytes=1))) == [b"x" * 5000]


def test_without_limits_rocketmqs_32_messages_are_the_most(parts: Parts) -> None:
    parts.send("orders", *[b"%d" % number for number in range(40)])
    assert len(bodies(answered(parts, pull(0)))) == 32


def test_an_offset_beyond_the_end_is_corrected_to_the_end(parts: Parts) -> None:
    parts.send("orders", b"a")
    answer = answered(parts, pull(10))
    assert (answer.code, answer.next_offset) == (Code.PULL_OFFSET_MOVED, 1)


def test_an_offset_in_a_queue_without_messages_is_corrected_to_zero(parts: Parts) -> None:
    answer = answered(parts, pull(10))
    assert (answer.code, answer.next_offset) == (Code.PULL_OFFSET_MOVED, 0)


def test_nothing_new_is_said_at_once_to_whoever_does_not_wait(parts: Parts) -> None:
    parts.send("orders", b"a")
    answer = answered(parts, pull(1))
    assert (answer.code, answer.next_offset, answer.remark) == (Code.PULL_NOT_FOUND, 1, "OFFSET_OVERFLOW_ONE")


def test_nothing_new_holds_whoever_waits(parts: Parts) -> None:
    parts.send("orders", b"a")
    assert asked(parts, pull(1, suspend_ms=1000)) is None


def test_an_empty_queue_holds_whoever_begins_at_its_beginning(parts: Parts) -> None:
    assert asked(parts, pull(0, suspend_ms=1000)) is None


def test_the_last_look_always_answers(parts: Parts) -> None:
    answer = asked(parts, pull(0, suspend_ms=1000), first=False, last=True)
    assert answer is not None
    assert answer.code == Code.PULL_NOT_FOUND


def test_a_wrong_offset_is_told_at_once_also_to_whoever_waits(parts: Parts) -> None:
    answer = asked(parts, pull(10, suspend_ms=1000))
    assert answer is not None
    assert answer.code == Code.PULL_OFFSET_MOVED


def test_only_wanted_tags_are_given_and_the_rest_is_passed_over(parts: Parts) -> None:
    for body, tag in ((b"1", "paid"), (b"2", "open"), (b"3", "paid")):
        parts.send("orders", body, tags=tag)
    answer = answered(parts, pull(0, expression="paid"))
    assert bodies(answer) == [b"1", b"3"]
    assert answer.next_offset == 3


def test_nothing_but_unwanted_messages_says_where_to_go_on_at_the_first_look(parts: Parts) -> None:
    parts.send("orders", b"1", tags="open")
    answer = answered(parts, pull(0, expression="paid", suspend_ms=1000))
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 1)


def test_a_held_pull_that_meets_only_unwanted_messages_stays_held_further_on(parts: Parts) -> None:
    request = pull(0, expression="paid", suspend_ms=1000)
    assert asked(parts, request) is None
    parts.send("orders", b"1", tags="open")
    parts.settle()
    assert parts.puller.look(request, first=False, last=False) is None
    assert request.read_offset == 1


def test_a_held_pulls_end_tells_how_far_it_has_come(parts: Parts) -> None:
    request = pull(0, expression="paid", suspend_ms=1000)
    assert asked(parts, request) is None
    parts.send("orders", b"1", tags="open")
    parts.settle()
    parts.puller.look(request, first=False, last=False)
    answer = parts.puller.look(request, first=False, last=True)
    assert answer is not None
    assert (answer.code, answer.next_offset) == (Code.PULL_RETRY_IMMEDIATELY, 1)


def test_a_pull_commits_what_it_carries_before_it_looks(parts: Parts) -> None:
    asked(parts, pull(0, commit_offset=0, suspend_ms=1000))
    assert parts.offsets.get(AT) == 0


def test_a_pull_without_a_commit_leaves_the_offset_alone(parts: Parts) -> None:
    parts.offsets.commit(AT, 5, by="sync")
    asked(parts, pull(0))
    assert parts.offsets.get(AT) == 5


def test_a_lower_commit_on_the_way_moves_the_offset_back(parts: Parts) -> None:
    parts.offsets.commit(AT, 5, by="sync")
    asked(parts, pull(0, commit_offset=2))
    assert parts.offsets.get(AT) == 2


def test_the_journal_names_a_commit_on_the_way(parts: Parts) -> None:
    asked(parts, pull(0, commit_offset=3))
    (event,) = parts.events("OFF_SET")
    assert (event["by"], event["old"], event["new"], event["client_id"]) == ("piggyback", -1, 3, "me")


def test_a_refused_pull_commits_nothing(parts: Parts) -> None:
    with pytest.raises(DejamqError):
        parts.puller.begin(pull(0, queue_id=9, commit_offset=3), 0, None)
    assert parts.offsets.get(Position("g", "orders", 9)) is None


def test_a_first_pull_makes_the_group(parts: Parts) -> None:
    asked(parts, pull(0))
    assert parts.groups.get("g") is not None


def test_without_automatic_groups_an_unknown_one_is_refused(tmp_path: Path) -> None:
    with parts_in(tmp_path, auto_create_subscription_group=False) as parts:
        parts.topics.update(TopicConfig("orders", 1, 1))
        with pytest.raises(DejamqError) as caught:
            parts.puller.begin(pull(0), 0, None)
        assert caught.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_group_that_is_switched_off_may_not_pull(parts: Parts) -> None:
    parts.groups.update("g", consume_enable=False)
    with pytest.raises(PermissionDenied, match="'g'"):
        parts.puller.begin(pull(0), 0, None)


def test_a_topic_that_nobody_made_is_refused(parts: Parts) -> None:
    with pytest.raises(DejamqError) as caught:
        parts.puller.begin(pull(0, topic="nowhere"), 0, None)
    assert caught.value.code is Code.TOPIC_NOT_EXIST


def test_a_topic_that_may_not_be_read_is_refused(parts: Parts) -> None:
    parts.topics.update(TopicConfig("orders", 2, 2, perm=2))
    with pytest.raises(PermissionDenied):
        parts.puller.begin(pull(0), 0, None)


@pytest.mark.parametrize("queue_id", [-1, 2])
def test_a_queue_that_readers_do_not_have_is_refused(parts: Parts, queue_id: int) -> None:
    with pytest.raises(DejamqError) as caught:
        parts.puller.begin(pull(0, queue_id=queue_id), 0, None)
    assert caught.value.code is Code.INVALID_PARAMETER


@pytest.mark.parametrize(
    ("wanted", "longest", "deadline"), [(15_000, None, 15_500), (15_000, 1000, 1500), (0, 1000, 500)]
)
def test_a_hold_lasts_as_long_as_asked_but_no_longer_than_the_broker_allows(
    parts: Parts, wanted: int, longest: int | None, deadline: int
) -> None:
    request = pull(0, suspend_ms=wanted)
    parts.puller.begin(request, 500, longest)
    assert request.deadline_ms == deadline


def test_the_journal_has_a_line_for_what_was_given_and_for_a_corrected_offset_only(parts: Parts) -> None:
    answered(parts, pull(0))
    parts.send("orders", b"a")
    answered(parts, pull(0))
    answered(parts, pull(9))
    assert [(event["code"], event.get("count", 0)) for event in parts.events("PULL")] == [(0, 1), (21, 0)]
