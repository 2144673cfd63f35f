"""What a pull is refused with, and whose subscription counts. RocketMQ: PullMessageProcessorTest and its siblings."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broker_parts import Parts, parts_in
from broker_pulls import AT, answered, asked, bodies, pull
from dejamq_broker.members.groups import Consumer, GroupSubscription
from dejamq_broker.tables.topics import TopicConfig
from dejamq_proto.codes import Code, DejamqError


@contextmanager
def broker(directory: Path, **settings: Any) -> Iterator[Parts]:
    with parts_in(directory, **settings) as made:
        made.topics.update(TopicConfig("orders", 2, 2))
        yield made


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with broker(tmp_path, enable_property_filter=True) as made:
        yield made


def subscribe(parts: Parts, *subscriptions: GroupSubscription, channel: int = 1, model: str = "CLUSTERING") -> None:
    parts.members.heartbeat(channel, f"c{channel}", "boot", Consumer("g", model, subscriptions), 0)


def refusal(parts: Parts, **more: Any) -> tuple[Code, str]:
    with pytest.raises(DejamqError) as caught:
        parts.puller.begin(pull(0, commit_offset=3, **more), 0, None)
    assert parts.offsets.get(AT) is None  # a refused pull commits nothing
    return Code(caught.value.code), str(caught.value)


def test_a_broker_that_may_not_be_read_refuses_every_pull(tmp_path: Path) -> None:
    with broker(tmp_path, broker_permission=2) as parts:
        assert refusal(parts)[0] is Code.NO_PERMISSION


def test_lite_pull_is_refused_where_it_is_switched_off_and_only_there(tmp_path: Path, parts: Parts) -> None:
    assert answered(parts, pull(0, lite=True)).code == Code.PULL_NOT_FOUND
    with broker(tmp_path / "other", lite_pull_message_enable=False) as strict:
        assert refusal(strict, lite=True)[0] is Code.NO_PERMISSION
        assert answered(strict, pull(0)).code == Code.PULL_NOT_FOUND


def test_without_sql_filters_one_is_refused_and_tags_are_not(tmp_path: Path) -> None:
    with broker(tmp_path) as parts:
        code, text = refusal(parts, expression="a > 5", expression_type="SQL92")
        assert (code, "enable_property_filter" in text) == (Code.SYSTEM_ERROR, True)
        assert answered(parts, pull(0, expression="a", expression_type="TAG")).code == Code.PULL_NOT_FOUND


@pytest.mark.parametrize(
    ("expression", "kind"), [("a >", "SQL92"), ("", "SQL92"), ("a > 5 b", "SQL92"), ("||", "TAG"), ("a", "class")]
)
def test_an_expression_that_cannot_be_understood_is_refused(parts: Parts, expression: str, kind: str) -> None:
    assert refusal(parts, expression=expression, expression_type=kind)[0] is Code.SUBSCRIPTION_PARSE_FAILED


def test_a_group_without_a_heartbeat_has_no_registered_subscription(parts: Parts) -> None:
    assert refusal(parts, registered=True)[0] is Code.SUBSCRIPTION_NOT_EXIST


def test_a_topic_that_the_group_does_not_subscribe_to_is_refused(parts: Parts) -> None:
    subscribe(parts, GroupSubscription("payments"))
    assert refusal(parts, registered=True)[0] is Code.SUBSCRIPTION_NOT_EXIST


def test_members_that_subscribe_to_different_topics_take_each_others_away(parts: Parts) -> None:
    subscribe(parts, GroupSubscription("orders"), channel=1)
    assert answered(parts, pull(0, registered=True)).code == Code.PULL_NOT_FOUND
    subscribe(parts, GroupSubscription("payments"), channel=2)
    assert refusal(parts, registered=True)[0] is Code.SUBSCRIPTION_NOT_EXIST


def test_a_subscription_older_than_the_consumers_own_is_refused(parts: Parts) -> None:
    subscribe(parts, GroupSubscription("orders", version=5))
    assert refusal(parts, registered=True, subscription_version=6)[0] is Code.SUBSCRIPTION_NOT_LATEST
    for version in (5, 4):
        answer = answered(parts, pull(0, registered=True, subscription_version=version))
        assert answer.code == Code.PULL_NOT_FOUND


def test_a_registered_expression_that_cannot_be_understood_is_no_filter(parts: Parts) -> None:
    subscribe(parts, GroupSubscription("orders", "a >", "SQL92"))
    code, text = refusal(parts, registered=True)
    assert (code, "position 3" in text) == (Code.FILTER_DATA_NOT_EXIST, True)


def test_a_group_that_may_not_broadcast_is_refused_when_it_does(parts: Parts) -> None:
    parts.groups.update("g", consume_broadcast_enable=False)
    subscribe(parts, GroupSubscription("orders"), model="BROADCASTING")
    assert refusal(parts, registered=True)[0] is Code.NO_PERMISSION
    subscribe(parts, GroupSubscription("orders"), model="CLUSTERING")
    assert answered(parts, pull(0, registered=True)).code == Code.PULL_NOT_FOUND


@pytest.mark.parametrize(("bits", "forbidden"), [(4, True), (7, True), (2, False), (0, False)])
def test_a_topic_taken_from_a_group_is_refused(tmp_path: Path, bits: int, forbidden: bool) -> None:
    with broker(tmp_path) as parts:
        parts.groups.require("g")
        path = tmp_path / "config" / "groups.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"forbiddenTable": {"g": {"orders": bits}}}))
        parts.groups.load()
        subscribe(parts, GroupSubscription("orders"))
        if forbidden:
            assert refusal(parts, registered=True)[0] is Code.NO_PERMISSION
        else:
            assert answered(parts, pull(0, registered=True)).code == Code.PULL_NOT_FOUND


def test_the_newest_heartbeat_decides_what_every_member_gets(parts: Parts) -> None:
    for body, tag in ((b"1", "paid"), (b"2", "open")):
        parts.send("orders", body, tags=tag)
    subscribe(parts, GroupSubscription("orders", "paid", version=1), channel=1)
    subscribe(parts, GroupSubscription("orders", "open", version=2), channel=2)
    assert bodies(answered(parts, pull(0, registered=True, subscription_version=1))) == [b"2"]
    subscribe(parts, GroupSubscription("orders", "paid", version=1), channel=1)
    assert bodies(answered(parts, pull(0, registered=True, subscription_version=1))) == [b"2"]


def test_a_held_pull_follows_the_groups_subscription(parts: Parts) -> None:
    subscribe(parts, GroupSubscription("orders", "paid", version=1))
    request = pull(0, registered=True, subscription_version=1, suspend_ms=1000)
    assert asked(parts, request) is None
    subscribe(parts, GroupSubscription("orders", "open", version=2))
    parts.send("orders", b"1", tags="open")
    parts.settle()
    answer = parts.puller.look(request, first=False, last=False)
    assert answer is not None
    assert bodies(answer) == [b"1"]


@pytest.mark.parametrize(("support", "wanted"), [(False, []), (True, [b"rich", b"other"])])
def test_a_filter_on_a_retry_topic_looks_at_the_first_topic_only_when_told(
    tmp_path: Path, support: bool, wanted: list[bytes]
) -> None:
    with broker(tmp_path, enable_property_filter=True, filter_support_retry=support) as parts:
        parts.topics.ensure("%RETRY%g", 1)
        subscribe(parts, GroupSubscription("orders", "amount > 5", "SQL92"))
        for body, topic, amount in ((b"poor", "orders", 1), (b"rich", "orders", 9), (b"other", "gone", 1)):
            parts.send("%RETRY%g", body, properties={"RETRY_TOPIC": topic, "amount": str(amount)})
        answer = answered(parts, pull(0, topic="%RETRY%g", expression="again = 'yes'", expression_type="SQL92"))
        assert bodies(answer) == wanted


def test_retries_of_a_topic_with_an_impossible_filter_are_let_through(tmp_path: Path) -> None:
    with broker(tmp_path, enable_property_filter=True, filter_support_retry=True) as parts:
        parts.topics.ensure("%RETRY%g", 1)
        subscribe(parts, GroupSubscription("orders", "amount >", "SQL92"))
        parts.send("%RETRY%g", b"poor", properties={"RETRY_TOPIC": "orders"})
        answer = answered(parts, pull(0, topic="%RETRY%g", expression="again = 'yes'", expression_type="SQL92"))
        assert bodies(answer) == [b"poor"]


def test_a_filter_by_tags_lets_every_retry_through(tmp_path: Path) -> None:
    with broker(tmp_path, enable_property_filter=True, filter_support_retry=True) as parts:
        parts.topics.ensure("%RETRY%g", 1)
        subscribe(parts, GroupSubscription("orders", "amount > 5", "SQL92"), GroupSubscription("%RETRY%g"))
        parts.send("%RETRY%g", b"poor", properties={"RETRY_TOPIC": "orders", "amount": "1"})
        assert bodies(answered(parts, pull(0, topic="%RETRY%g", registered=True))) == [b"poor"]
