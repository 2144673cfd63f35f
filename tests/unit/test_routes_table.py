from collections.abc import Sequence

import pytest
from dejamq_namesrv.routes import BROKER_TIMEOUT_MS, RouteTable
from dejamq_namesrv.topology import BrokerChange, BrokerIdentity, RegisteredTopic, TopicTableVersion
from dejamq_proto.codes import Code, DejamqError

V1, V2 = TopicTableVersion(0, 1, 1), TopicTableVersion(0, 2, 2)


def broker(
    name: str = "broker-a", broker_id: int = 0, address: str = "10.0.0.1:10911", boot_id: str = "boot"
) -> BrokerIdentity:
    return BrokerIdentity("lab", name, broker_id, address, boot_id)


def topics(*names: str, queues: int = 4, perm: int = 6) -> list[RegisteredTopic]:
    return [RegisteredTopic(name, queues, queues, perm) for name in (*names, "TBW102")]


def addresses(
    table: RouteTable, topic: str = "orders", now_ms: int = 0, listener: str = ""
) -> dict[str, dict[int, str]]:
    route = table.route(topic, now_ms, listener)
    return {data.broker_name: dict(data.addresses) for data in route.brokers} if route else {}


def queue_nums(table: RouteTable, topic: str = "orders") -> dict[str, int]:
    route = table.route(topic, 0)
    return {data.broker_name: data.write_queue_nums for data in route.queues} if route else {}


def signs(changes: Sequence[BrokerChange]) -> list[tuple[str, str, int]]:
    return [(change.sign, change.reason, change.identity.broker_id) for change in changes]


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def test_a_registered_master_is_in_the_route_of_its_topics(table: RouteTable) -> None:
    done = table.register(broker(), topics("orders"), V1, 0)
    assert signs(done.changes) == [("+", "register", 0)]
    assert addresses(table) == {"broker-a": {0: "10.0.0.1:10911"}}
    assert queue_nums(table) == {"broker-a": 4}
    assert table.topics(0) == ["TBW102", "orders"]


def test_an_unknown_topic_has_no_route(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    assert table.route("payments", 0) is None


def test_registering_again_changes_nothing_but_the_age(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    assert table.register(broker(), topics("orders"), V1, 100_000).changes == ()
    assert addresses(table, now_ms=100_000 + BROKER_TIMEOUT_MS)


def test_a_slave_is_told_its_master_and_joins_the_addresses(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    done = table.register(broker(broker_id=1, address="10.0.0.2:10911"), topics("orders"), V1, 0)
    assert done.master_address == "10.0.0.1:10911"
    assert addresses(table) == {"broker-a": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}


def test_topics_are_taken_from_the_master_only_while_there_is_one(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(broker_id=1, address="10.0.0.2:10911"), topics("orders", "payments", queues=8), V2, 0)
    assert queue_nums(table) == {"broker-a": 4}
    assert table.route("payments", 0) is None


def test_a_group_of_slaves_alone_takes_topics_from_the_smallest_id(table: RouteTable) -> None:
    table.register(broker(broker_id=1, address="10.0.0.2:10911"), topics("orders"), V1, 0)
    table.register(broker(broker_id=2, address="10.0.0.3:10911"), topics("payments"), V2, 0)
    assert addresses(table) == {"broker-a": {1: "10.0.0.2:10911", 2: "10.0.0.3:10911"}}
    assert table.route("payments", 0) is None


def test_queues_stay_readable_when_only_a_slave_is_left(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(broker_id=1, address="10.0.0.2:10911"), topics("orders"), V1, 0)
    table.unregister(broker())
    assert addresses(table) == {"broker-a": {1: "10.0.0.2:10911"}}
    assert queue_nums(table) == {"broker-a": 4}


def test_a_slave_that_becomes_master_leaves_its_old_id(table: RouteTable) -> None:
    table.register(broker(broker_id=1), topics("orders"), V1, 0)
    done = table.register(broker(broker_id=0), topics("orders"), V1, 0)
    assert signs(done.changes) == [("-", "register", 1), ("+", "register", 0)]
    assert addresses(table) == {"broker-a": {0: "10.0.0.1:10911"}}


def test_a_master_that_moved_is_known_by_its_new_address(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(address="10.0.0.9:10911"), topics("orders"), V1, 0)
    assert addresses(table) == {"broker-a": {0: "10.0.0.9:10911"}}


def test_an_older_state_version_cannot_take_over_an_id(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), TopicTableVersion(2, 1, 1), 0)
    done = table.register(broker(address="10.0.0.9:10911"), topics("orders"), TopicTableVersion(1, 1, 1), 0)
    assert done.changes == ()
    assert addresses(table) == {"broker-a": {0: "10.0.0.1:10911"}}


def test_a_single_topic_from_an_unknown_broker_is_refused(table: RouteTable) -> None:
    with pytest.raises(DejamqError, match="register broker failed") as caught:
        table.register(broker(), [RegisteredTopic("orders", 4, 4, 6)], V1, 0)
    assert caught.value.code == Code.SYSTEM_ERROR
    assert table.cluster_info(0) == []


def test_a_single_topic_from_a_known_broker_is_an_increment(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(), [RegisteredTopic("payments", 2, 2, 6)], V2, 0)
    assert queue_nums(table, "payments") == {"broker-a": 2}
    assert queue_nums(table, "orders") == {"broker-a": 4}


def test_the_same_data_version_changes_no_queue_but_adds_what_is_missing(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(), topics("orders", "payments", queues=8), V1, 0)
    assert queue_nums(table) == {"broker-a": 4}
    assert queue_nums(table, "payments") == {"broker-a": 8}


def test_a_new_data_version_replaces_the_queues(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker(), topics("orders", queues=8), V2, 0)
    assert queue_nums(table) == {"broker-a": 8}


def test_a_topic_deleted_at_the_broker_stays_known(table: RouteTable) -> None:
    table.register(broker(), topics("orders", "payments"), V1, 0)
    table.register(broker(), topics("orders"), V2, 0)
    assert addresses(table, "payments") == {"broker-a": {0: "10.0.0.1:10911"}}


def test_unregistering_the_last_replica_drops_its_topics(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker("broker-b", address="10.0.0.2:10911"), topics("orders"), V1, 0)
    assert signs(table.unregister(broker())) == [("-", "unregister", 0)]
    assert addresses(table) == {"broker-b": {0: "10.0.0.2:10911"}}
    table.unregister(broker("broker-b", address="10.0.0.2:10911"))
    assert table.topics(0) == []
    assert table.cluster_info(0) == []


def test_unregistering_twice_or_as_a_stranger_changes_nothing(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    assert table.unregister(broker(address="10.0.0.9:1")) == []
    assert table.unregister(broker("broker-b")) == []
    table.unregister(broker())
    assert table.unregister(broker()) == []


def test_a_silent_broker_leaves_routes_after_its_time_out_even_before_the_scan(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 1_000)
    assert addresses(table, now_ms=1_000 + BROKER_TIMEOUT_MS)
    assert not addresses(table, now_ms=1_001 + BROKER_TIMEOUT_MS)
    assert table.topics(1_001 + BROKER_TIMEOUT_MS) == []


def test_the_scan_removes_the_silent_only(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.register(broker("broker-b", address="10.0.0.2:10911"), topics("orders"), V1, 60_000)
    assert signs(table.expire(BROKER_TIMEOUT_MS + 1)) == [("-", "expired", 0)]
    assert table.expire(BROKER_TIMEOUT_MS + 1) == []
    assert list(addresses(table, now_ms=BROKER_TIMEOUT_MS + 1)) == ["broker-b"]


def test_a_broker_may_name_its_own_time_out(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0, timeout_ms=10_000)
    assert table.expire(10_000) == []
    assert signs(table.expire(10_001)) == [("-", "expired", 0)]


def test_the_end_of_its_channel_removes_a_broker_at_once(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.attach("channel 1", broker())
    assert signs(table.channel_closed("channel 1")) == [("-", "channel_closed", 0)]
    assert table.route("orders", 0) is None
    assert table.channel_closed("channel 1") == []


def test_the_end_of_an_old_channel_does_not_remove_a_broker_that_reconnected(table: RouteTable) -> None:
    table.register(broker(), topics("orders"), V1, 0)
    table.attach("channel 1", broker())
    table.attach("channel 2", broker())
    assert table.channel_closed("channel 1") == []
    assert addresses(table)


def test_the_end_of_a_dead_process_does_not_remove_the_one_started_in_its_place(table: RouteTable) -> None:
    table.register(broker(boot_id="first"), topics("orders"), V1, 0)
    table.attach("channel 1", broker(boot_id="first"))
    table.register(broker(boot_id="second"), topics("orders"), V1, 0)
    assert table.channel_closed("channel 1") == []
    assert addresses(table)


def test_a_client_is_told_the_address_of_the_listener_it_dialled(table: RouteTable) -> None:
    inside = BrokerIdentity("lab", "broker-a", 0, "127.0.0.1:10911", "boot", {"namesrv-0": "broker-a:10911"})
    table.register(inside, topics("orders"), V1, 0)
    assert addresses(table, listener="namesrv-0") == {"broker-a": {0: "broker-a:10911"}}
    assert addresses(table, listener="localhost") == {"broker-a": {0: "127.0.0.1:10911"}}
    assert table.cluster_info(0, "namesrv-0")[0].addresses == {0: "broker-a:10911"}


def test_tables_with_the_same_brokers_give_the_same_digest() -> None:
    one, other = RouteTable(), RouteTable()
    second = broker("broker-b", address="10.0.0.2:10911")
    for table, order in ((one, (broker(), second)), (other, (second, broker()))):
        for identity in order:
            table.register(identity, topics("orders"), V1, 0)
    first_route, other_route = one.route("orders", 0), other.route("orders", 0)
    assert first_route is not None
    assert other_route is not None
    assert first_route.digest_text() == other_route.digest_text()


def test_a_deleted_topic_is_forgotten_at_once_and_comes_back_with_a_broker_that_still_has_it(table: RouteTable) -> None:
    a, b = broker(), broker("broker-b", address="10.0.0.2:10911")
    for one in (a, b):
        table.register(one, topics("orders"), V1, 0)
    assert table.delete_topic("orders", ["broker-a", "broker-x"]) == 1
    assert set(queue_nums(table)) == {"broker-b"}
    assert table.delete_topic("orders") == 1
    assert table.delete_topic("orders") == table.delete_topic("nowhere") == 0
    assert table.route("orders", 0) is None
    assert "orders" not in table.topics(0)
    assert set(queue_nums(table, "TBW102")) == {"broker-a", "broker-b"}
    table.register(a, topics("orders"), V1, 0)
    assert set(queue_nums(table)) == {"broker-a"}


@pytest.mark.parametrize(("forget", "left"), [(False, {"broker-a": 4}), (True, {})])
def test_what_a_changed_table_lacks_stays_or_goes_as_the_setting_says(forget: bool, left: dict[str, int]) -> None:
    table = RouteTable(forget_topics=forget)
    table.register(broker(), topics("orders", "refunds"), V1, 0)
    table.register(broker(), topics("refunds"), V1, 0)
    assert queue_nums(table) == {"broker-a": 4}, "the version is the same, so nothing is looked at"
    table.register(broker(), topics("refunds"), V2, 0)
    assert queue_nums(table) == left
    assert queue_nums(table, "refunds") == {"broker-a": 4}
