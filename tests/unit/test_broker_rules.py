"""Further rules of RocketMQ that the broker's tables keep: groups, offsets, versions, names."""

import json
from pathlib import Path

import pytest
from broker_tables import offset_table
from dejamq_broker.base.data_version import TableVersion
from dejamq_broker.members.groups import Consumer, GroupSubscription, GroupTable
from dejamq_broker.tables.offsets import COMMITS_PER_VERSION, OffsetTable, Position
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level

OFF = Journal(None, role="broker", process="b", boot_id="x", level=Level.OFF)


def offsets_in(directory: Path) -> OffsetTable:
    return offset_table(directory / "consumerOffset.json", OFF, lambda: 1000)


def groups_in(directory: Path, *, auto_create: bool = True) -> SubscriptionGroupTable:
    table = SubscriptionGroupTable(directory / "subscriptionGroup.json", lambda: 1000, auto_create=auto_create)
    table.load()
    return table


def test_versions_are_equal_only_when_all_three_parts_are() -> None:
    version = TableVersion(1, 2, 3)
    assert version == TableVersion(1, 2, 3)
    assert version not in (TableVersion(9, 2, 3), TableVersion(1, 9, 3), TableVersion(1, 2, 9))


def test_the_next_version_counts_and_takes_the_time_even_when_the_clock_went_back() -> None:
    assert TableVersion(4, 7, 5000).next(1000) == TableVersion(5, 7, 1000)


def test_the_offset_files_version_advances_every_500_commits(tmp_path: Path) -> None:
    table = offsets_in(tmp_path)
    for number in range(COMMITS_PER_VERSION - 1):
        table.commit(Position("g", "t", 0), number, by="oneway")
    assert table._version.counter == 0
    table.commit(Position("g", "t", 0), 0, by="oneway")
    assert table._version.counter == 1


def test_groups_that_consume_one_topic_have_offsets_of_their_own(tmp_path: Path) -> None:
    table = offsets_in(tmp_path)
    table.commit(Position("g", "t", 0), 5, by="sync")
    table.commit(Position("h", "t", 0), 9, by="sync")
    assert list(table.of_group("g")) == [("t", 0, 5)]
    assert list(table.of_group("h")) == [("t", 0, 9)]


def test_a_groups_queues_are_told_in_order(tmp_path: Path) -> None:
    table = offsets_in(tmp_path)
    for queue_id in (10, 2, 0):
        table.commit(Position("g", "t", queue_id), queue_id, by="sync")
    assert [queue_id for _, queue_id, _ in table.of_group("g")] == [0, 2, 10]


async def test_offsets_are_filed_by_topic_at_group_with_queue_ids_as_keys(tmp_path: Path) -> None:
    table = offsets_in(tmp_path)
    table.commit(Position("g", "t", 3), 7, by="sync")
    await table.flush()
    assert json.loads((tmp_path / "consumerOffset.json").read_text())["offsetTable"] == {"t@g": {"3": 7}}


def test_queue_ids_without_quotes_are_read_as_rocketmq_writes_them(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"t@g":{0:32,1:30}}}')
    table = offsets_in(tmp_path)
    assert table.load() == "main"
    assert list(table.of_group("g")) == [("t", 0, 32), ("t", 1, 30)]


def test_an_offset_is_no_promise_that_the_queue_has_it(tmp_path: Path) -> None:
    table = offsets_in(tmp_path)
    table.commit(Position("g", "nowhere", 99), 1 << 40, by="sync")
    assert table.get(Position("g", "nowhere", 99)) == 1 << 40


@pytest.mark.parametrize("group", ["TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"])
def test_built_in_groups_are_known_where_none_are_made(tmp_path: Path, group: str) -> None:
    assert groups_in(tmp_path, auto_create=False).known(group).group_name == group


def test_a_group_made_on_first_use_has_rocketmqs_defaults_and_survives(tmp_path: Path) -> None:
    groups_in(tmp_path).require("g")
    group = groups_in(tmp_path, auto_create=False).known("g")
    assert (group.retry_queue_nums, group.retry_max_times, group.consume_enable) == (1, 16, True)


def test_asking_for_a_group_makes_none(tmp_path: Path) -> None:
    table = groups_in(tmp_path)
    assert table.get("g") is None
    with pytest.raises(DejamqError) as caught:
        table.known("g")
    assert caught.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not (tmp_path / "subscriptionGroup.json").exists()


def test_a_forbidden_table_of_rocketmq_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_text(json.dumps({"subscriptionGroupTable": {}, "forbiddenTable": {"g": {"t": 1}}}))
    groups_in(tmp_path).require("h")
    assert json.loads(path.read_text())["forbiddenTable"] == {"g": {"t": 1}}


def consumer(*topics: str, version: int = 1) -> Consumer:
    return Consumer("g", subscriptions=tuple(GroupSubscription(topic, version=version) for topic in topics))


def test_members_with_different_topics_take_each_others_away_with_every_heartbeat() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "ba", consumer("orders"), 0)
    table.heartbeat(2, "b", "bb", consumer("bills"), 0)
    assert list(table.subscriptions("g")) == ["bills"]
    table.heartbeat(1, "a", "ba", consumer("orders"), 1)
    assert list(table.subscriptions("g")) == ["orders"]


def test_an_older_version_does_not_replace_a_newer_expression() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "ba", Consumer("g", subscriptions=(GroupSubscription("t", "new", version=9),)), 0)
    table.heartbeat(2, "b", "bb", Consumer("g", subscriptions=(GroupSubscription("t", "old", version=3),)), 0)
    assert table.subscriptions("g")["t"].expression == "new"


def test_a_group_whose_last_member_left_is_forgotten_with_its_topics() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "ba", consumer("orders"), 0)
    (change,) = table.leave(1, reason="close")
    assert change.notify == ()
    assert (table.names(), table.subscriptions("g"), table.members("g")) == ([], {}, [])


def test_leaving_twice_changes_nothing() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "ba", consumer("orders"), 0)
    table.leave(1, reason="close")
    assert table.leave(1, reason="close") == []


def test_one_start_of_a_client_is_told_from_another_with_its_id() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "first-start", consumer("orders"), 0)
    table.heartbeat(2, "a", "second-start", consumer("orders"), 0)
    assert table.channels_of("a", "second-start", "g") == [2]


def test_exactly_at_the_end_of_its_time_a_member_stays() -> None:
    table = GroupTable()
    table.heartbeat(1, "a", "ba", consumer("orders"), 0)
    assert table.expire(120_000, 120_000) == []
    assert [change.reason for change in table.expire(120_001, 120_000)] == ["expire"]
