"""The table of consumer groups: all of RocketMQ's settings, the end of a group, and what it may not read."""

import json
from pathlib import Path

import pytest
from dejamq_broker.tables.subscription_groups import BUILT_IN, SubscriptionGroup, SubscriptionGroupTable
from dejamq_proto.codes import Code, DejamqError, InvalidName


def table_in(directory: Path) -> SubscriptionGroupTable:
    table = SubscriptionGroupTable(directory / "subscriptionGroup.json", lambda: 5000, auto_create=True)
    table.load()
    return table


def test_every_setting_is_kept_by_rocketmqs_name_and_changed_alone(tmp_path: Path) -> None:
    changes = {
        "consume_enable": False, "consume_from_min_enable": False, "consume_broadcast_enable": False,
        "consume_message_orderly": True, "retry_queue_nums": 2, "retry_max_times": 3, "broker_id": 1,
        "which_broker_when_consume_slowly": 2, "notify_consumer_ids_changed_enable": False, "group_sys_flag": 1,
        "consume_timeout_minute": 5,
    }  # fmt: skip
    table = table_in(tmp_path)
    for name, value in changes.items():
        table.update("g", **{name: value})
    kept = json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]["g"]
    assert {key: kept[key] for key in ("consumeEnable", "brokerId", "whichBrokerWhenConsumeSlowly")} == {
        "consumeEnable": False, "brokerId": 1, "whichBrokerWhenConsumeSlowly": 2,
    }  # fmt: skip
    assert table_in(tmp_path).get("g") == SubscriptionGroup("g", **changes)  # type: ignore[arg-type]  # each its own


@pytest.mark.parametrize("name", ["retry_queue_nums", "retry_max_times", "consume_timeout_minute", "broker_id"])
def test_numbers_below_0_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DejamqError, match=f"{name} is 0 or more") as refused:
        table_in(tmp_path).update("g", **{name: -1})
    assert refused.value.code is Code.INVALID_PARAMETER


def test_a_deleted_group_is_gone_from_the_file_with_what_it_was_forbidden(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.require("g")
    table.forbid("g", "orders", True)
    assert table.delete("g") is True
    assert table.delete("g") is False
    content = json.loads((tmp_path / "subscriptionGroup.json").read_text())
    assert (content["subscriptionGroupTable"], content["forbiddenTable"]) == ({}, {})
    assert not table_in(tmp_path).reading_forbidden("g", "orders")


@pytest.mark.parametrize("group", BUILT_IN)
def test_built_in_groups_are_always_there_and_stay(tmp_path: Path, group: str) -> None:
    table = table_in(tmp_path)
    assert table.known(group).consume_enable
    with pytest.raises(InvalidName):
        table.delete(group)
    assert not (tmp_path / "subscriptionGroup.json").exists()


def test_forbidden_topics_survive_a_restart_and_foreign_bits_stay(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    table.require("g")
    path = tmp_path / "subscriptionGroup.json"
    content = json.loads(path.read_text()) | {"forbiddenTable": {"g": {"orders": 2}}}
    path.write_text(json.dumps(content))
    table = table_in(tmp_path)
    assert table.forbidden_topics("g") == []
    table.forbid("g", "orders", True)
    table.forbid("g", "refunds", True)
    again = table_in(tmp_path)
    assert again.forbidden_topics("g") == ["orders", "refunds"]
    assert json.loads(path.read_text())["forbiddenTable"] == {"g": {"orders": 6, "refunds": 4}}
    again.forbid("g", "orders", False)
    again.forbid("g", "refunds", False)
    assert json.loads(path.read_text())["forbiddenTable"] == {"g": {"orders": 2}}
    with pytest.raises(DejamqError) as unknown:
        again.forbid("nobody", "orders", True)
    assert unknown.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST


def test_a_group_that_cannot_be_kept_is_not_half_deleted(tmp_path: Path) -> None:
    table = table_in(tmp_path / "config")
    table.require("g")
    (tmp_path / "config").rename(tmp_path / "away")
    (tmp_path / "config").write_text("something else")
    with pytest.raises(DejamqError, match="cannot be written"):
        table.delete("g")
    assert table.get("g") is not None
