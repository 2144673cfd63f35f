"""Group membership: who joins and leaves, and whom that is news for."""

import msgspec
import pytest
from dejamq_broker.members.groups import GRACEFUL, POPS, Consumer, GroupSubscription, GroupTable, MemberChange

A, B, C = 1, 2, 3
ORDERS = Consumer("g", subscriptions=(GroupSubscription("orders", version=1),))


def joined(*channels: int, consumer: Consumer = ORDERS) -> GroupTable:
    table = GroupTable()
    for channel in channels:
        table.heartbeat(channel, f"c{channel}", f"boot{channel}", consumer, 1000)
    return table


def test_a_new_member_is_news_for_everybody_and_itself() -> None:
    change = joined(A).heartbeat(B, "c2", "boot2", ORDERS, 1000)
    assert change == MemberChange("g", "c2", "boot2", "+", "heartbeat", (A, B))


def test_the_same_heartbeat_again_is_no_news() -> None:
    assert joined(A).heartbeat(A, "c1", "boot1", ORDERS, 2000) is None


@pytest.mark.parametrize(
    ("subscriptions", "news"),
    [
        ((GroupSubscription("orders", version=1), GroupSubscription("bills", version=2)), True),
        ((), True),
        ((GroupSubscription("orders", "TagA", version=9),), False),
    ],
)
def test_a_topic_that_comes_or_goes_is_news_and_another_expression_is_not(
    subscriptions: tuple[GroupSubscription, ...], news: bool
) -> None:
    change = joined(A, B).heartbeat(A, "c1", "boot1", Consumer("g", subscriptions=subscriptions), 2000)
    assert (change is not None) is news
    if change is not None:
        assert (change.sign, change.notify) == ("", (A, B))


@pytest.mark.parametrize(("version", "expression"), [(2, "new"), (1, "*"), (0, "*")])
def test_the_newer_subscription_wins(version: int, expression: str) -> None:
    table = joined(A)
    newer = Consumer("g", subscriptions=(GroupSubscription("orders", "new", version=version),))
    table.heartbeat(B, "c2", "boot2", newer, 2000)
    assert table.subscriptions("g")["orders"].expression == expression


POPPING = Consumer("g", subscriptions=(GroupSubscription("other", version=9),), kind=POPS)


def test_a_member_that_pops_is_in_the_group_and_takes_no_share_of_its_queues() -> None:
    table = joined(A)
    table.heartbeat(B, "c2", "boot2", POPPING, 1000)
    assert (table.members("g"), table.sharing("g")) == (["c1", "c2"], ["c1"])


def test_a_member_that_pops_is_no_news_for_others_and_leaves_their_subscriptions_as_they_are() -> None:
    table = joined(A)
    change = table.heartbeat(B, "c2", "boot2", POPPING, 1000)
    assert change == MemberChange("g", "c2", "boot2", "+", "heartbeat", ())
    assert list(table.subscriptions("g")) == ["orders"]
    assert [each.notify for each in table.leave(B, reason="close")] == [()]


def test_members_that_only_pop_have_their_subscriptions_until_one_comes_that_shares() -> None:
    table = joined(A, consumer=POPPING)
    assert list(table.subscriptions("g")) == ["other"]
    table.heartbeat(B, "c2", "boot2", ORDERS, 1000)
    assert list(table.subscriptions("g")) == ["orders"]


def test_a_member_that_pops_does_not_end_graceful_hand_over() -> None:
    table = joined(A, consumer=msgspec.structs.replace(ORDERS, handover=GRACEFUL))
    table.heartbeat(B, "c2", "boot2", POPPING, 1000)
    assert table.handover_off("g") == ""


def test_a_closed_channel_leaves_all_its_groups_and_the_others_are_told() -> None:
    table = joined(A, B)
    table.heartbeat(A, "c1", "boot1", Consumer("h"), 1000)
    changes = table.leave(A, reason="close")
    assert [(change.group, change.sign, change.reason, change.notify) for change in changes] == [
        ("g", "-", "close", (B,)),
        ("h", "-", "close", ()),
    ]
    assert table.names() == ["g"]
    assert table.leave(A, reason="close") == []


def test_silence_expires_without_news_for_anybody() -> None:
    table = joined(A, B)
    table.heartbeat(B, "c2", "boot2", ORDERS, 100_000)
    assert table.expire(121_000, 120_000) == []
    (change,) = table.expire(121_001, 120_000)
    assert (change.client_id, change.reason, change.notify) == ("c1", "expire", ())
    assert table.members("g") == ["c2"]


def test_one_client_id_twice_is_listed_twice_and_visible_as_a_clash() -> None:
    table = joined(A)
    table.heartbeat(B, "c1", "another boot", ORDERS, 1000)
    assert table.members("g") == ["c1", "c1"]
    assert table.clashes("g") == ["c1"]
    assert table.channels_of("c1", "another boot", "g") == [B]


def test_members_of_a_broadcasting_group_are_not_told() -> None:
    table = joined(A, consumer=Consumer("g", "BROADCASTING"))
    change = table.heartbeat(B, "c2", "boot2", Consumer("g", "BROADCASTING"), 1000)
    assert change is not None
    assert change.notify == ()


def test_an_unknown_group_has_nobody() -> None:
    assert GroupTable().members("nobody") == []
    assert GroupTable().leave(A, ["nobody"], reason="unregister") == []


def test_members_that_tell_the_same_share_what_they_told() -> None:
    table = joined(A)
    table.heartbeat(B, "c2", "boot2", msgspec.structs.replace(ORDERS, model="CLUSTERING"), 1000)
    one, (other,) = table.member("g", A) or pytest.fail("it is there")
    assert one.consumer is other.consumer
    assert one.ways is other.ways


def test_a_channel_that_ends_leaves_its_own_groups_and_no_other() -> None:
    table = joined(A, B)
    table.heartbeat(A, "c1", "boot1", Consumer("other"), 1000)
    table.leave(A, ["g"], reason="unregister")
    assert [change.group for change in table.leave(A, reason="close")] == ["other"]
    assert table.leave(A, reason="close") == []
    assert table.members("g") == ["c2"]
