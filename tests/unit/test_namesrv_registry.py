"""What a name server decides and journals behind its door: who may register, order topics, expiry, cluster info."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.kv_config import ORDER_TOPICS, KvConfig
from dejamq_namesrv.registry import Registry
from dejamq_namesrv.routes import RouteTable
from dejamq_namesrv.topology import BrokerIdentity, RegisteredTopic, TopicTableVersion
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from journalled import journalled

V1, V2 = TopicTableVersion(0, 1, 1), TopicTableVersion(0, 2, 2)
A = BrokerIdentity("lab", "broker-a", 0, "10.0.0.1:10911", "boot-a")
B = BrokerIdentity("lab", "broker-b", 0, "10.0.0.2:10911", "boot-b")
SLAVE = BrokerIdentity("lab", "broker-a", 1, "10.0.0.3:10911", "boot-s")


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


class Behind:
    """A registry with a clock and a journal that tests look into."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.clock, self.path = Clock(), directory / "j.jsonl"
        journal = Journal(self.path, role="namesrv", process="n", boot_id="n0", level=Level.FORENSIC)
        self.registry = Registry(NamesrvConfig(**settings), KvConfig(None), journal, self.clock)

    def register(
        self, identity: BrokerIdentity, *topics: str, version: TopicTableVersion = V1, timeout_ms: int = 0
    ) -> str:
        configs = [RegisteredTopic(topic, 4, 4, 6) for topic in (*topics, "TBW102", "SELF_TEST_TOPIC")]
        return self.registry.register(identity, configs, version, timeout_ms).master_address

    def told(self) -> list[tuple[str, str, str]]:
        return [(line["broker_name"], line["change"], line["reason"]) for line in journalled(self.path, "BROKER")]

    def routes_told(self) -> list[dict[str, Any]]:
        return journalled(self.path, "ROUTE")


@pytest.fixture
def behind(tmp_path: Path) -> Behind:
    return Behind(tmp_path)


@pytest.mark.parametrize(
    "identity",
    [
        BrokerIdentity("lab", "", 0, "10.0.0.1:10911"),
        BrokerIdentity("lab", "broker-a", 0, "10.0.0.1"),
        BrokerIdentity("lab", "broker-a", 0, ""),
        BrokerIdentity("lab", "broker-a", -1, "10.0.0.1:10911"),
    ],
)
def test_an_identity_that_names_no_broker_is_refused(behind: Behind, identity: BrokerIdentity) -> None:
    with pytest.raises(DejamqError) as caught:
        behind.register(identity, "orders")
    assert caught.value.code is Code.INVALID_PARAMETER
    assert behind.registry.cluster_info("") == []


def test_a_brokers_first_registration_is_journalled_and_its_repetition_is_not(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.register(A, "orders")
    assert behind.told() == [("broker-a", "+", "register")]


def test_a_broker_that_leaves_is_journalled_with_the_reason(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.registry.unregister(A)
    assert behind.told()[1:] == [("broker-a", "-", "unregister")]


def test_a_channels_end_is_journalled_as_such(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.registry.attach("channel", A)
    behind.registry.channel_closed("channel")
    assert behind.told()[1:] == [("broker-a", "-", "channel_closed")]


def test_a_channel_of_nobody_ends_without_a_word(behind: Behind) -> None:
    behind.registry.channel_closed("never attached")
    assert behind.told() == []


def test_a_light_heartbeat_by_cluster_and_address_is_a_sign_of_life(behind: Behind) -> None:
    behind.register(A)
    behind.register(B)
    behind.clock.now_ms = 120_000
    behind.registry.beat("lab", A.address)
    behind.registry.beat("other", B.address)
    behind.clock.now_ms += 1
    behind.registry.expire()
    assert behind.told()[2:] == [("broker-b", "-", "expired")]


def test_a_time_out_that_is_changed_holds_from_the_next_registration_on(behind: Behind) -> None:
    behind.register(A)
    behind.registry.settings.update({"broker_timeout_ms": "1000"})
    behind.register(B)
    behind.clock.now_ms = 1001
    behind.registry.expire()
    assert behind.told()[2:] == [("broker-b", "-", "expired")]


def test_topics_are_forgotten_with_a_registration_once_that_is_set(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.registry.settings.update({"deleteTopicWithBrokerRegistration": "true"})
    behind.register(A, version=V2)
    assert "orders" not in behind.registry.topics()


def test_a_silent_broker_expires_after_120_seconds_and_not_before(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.clock.now_ms = 120_000
    behind.registry.expire()
    assert len(behind.told()) == 1
    behind.clock.now_ms = 120_001
    behind.registry.expire()
    assert behind.told()[1:] == [("broker-a", "-", "expired")]


def test_each_registration_gives_the_broker_its_time_anew(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.clock.now_ms = 100_000
    behind.register(A, "orders")
    behind.clock.now_ms = 200_000
    behind.registry.expire()
    assert behind.registry.topics() == ["SELF_TEST_TOPIC", "TBW102", "orders"]


def test_the_configured_time_out_is_for_brokers_that_name_none(tmp_path: Path) -> None:
    behind = Behind(tmp_path, broker_timeout_ms=1000)
    behind.register(A, "orders")
    behind.register(B, "orders", timeout_ms=9000)
    behind.clock.now_ms = 5000
    assert [broker.broker_name for broker in behind.registry.cluster_info("")] == ["broker-b"]


def perms(behind: Behind, topic: str) -> dict[str, int]:
    return {queues.broker_name: queues.perm for queues in behind.registry.route(topic, "", "c").queues}


def test_a_broker_loses_its_write_permission_in_every_route_and_others_keep_theirs(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.register(B, "orders")
    assert behind.registry.set_writable("broker-a", False) == 3  # with TBW102 and SELF_TEST_TOPIC
    assert perms(behind, "orders") == {"broker-a": 4, "broker-b": 6}
    assert perms(behind, "TBW102")["broker-a"] == 4
    assert behind.registry.set_writable("broker-a", True) == 3
    assert perms(behind, "orders") == {"broker-a": 6, "broker-b": 6}
    assert behind.registry.set_writable("broker-c", False) == 0


def test_a_lost_write_permission_outlives_repeated_registrations_but_no_changed_one(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.registry.set_writable("broker-a", False)
    behind.register(A, "orders")
    assert perms(behind, "orders") == {"broker-a": 4}
    behind.register(A, "orders", version=V2)
    assert perms(behind, "orders") == {"broker-a": 6}


def test_a_topic_that_nobody_has_is_refused_with_rocketmqs_code(behind: Behind) -> None:
    with pytest.raises(DejamqError, match="'orders'") as caught:
        behind.registry.route("orders", "", "")
    assert caught.value.code is Code.TOPIC_NOT_EXIST


def test_every_answer_about_a_route_is_journalled_with_who_asked(behind: Behind) -> None:
    behind.register(A, "orders")
    behind.registry.route("orders", "", "boot-of-client")
    (event,) = behind.routes_told()
    assert (event["topic"], event["client_boot_id"]) == ("orders", "boot-of-client")
    assert event["brokers"] == ["broker-a:0=10.0.0.1:10911"]


def test_an_answer_that_there_is_no_route_is_journalled_too(behind: Behind) -> None:
    with pytest.raises(DejamqError):
        behind.registry.route("orders", "", "boot-of-client")
    (event,) = behind.routes_told()
    assert event["brokers"] == []


def test_two_name_servers_that_know_the_same_give_the_same_digest(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        behind = Behind(tmp_path / name)
        for identity in (A, B) if name == "one" else (B, A):
            behind.register(identity, "orders")
        behind.registry.route("orders", "", "")
        digests.append(behind.routes_told()[0]["digest"])
    assert digests[0] == digests[1]


def test_name_servers_that_know_different_brokers_give_different_digests(tmp_path: Path) -> None:
    behind = Behind(tmp_path)
    behind.register(A, "orders")
    behind.registry.route("orders", "", "")
    behind.register(B, "orders")
    behind.registry.route("orders", "", "")
    first, second = behind.routes_told()
    assert first["digest"] != second["digest"]


def test_a_slave_is_told_where_its_master_is_and_a_master_is_told_nothing(behind: Behind) -> None:
    assert behind.register(A, "orders") == ""
    assert behind.register(SLAVE, "orders") == "10.0.0.1:10911"


def test_a_slave_without_master_is_told_of_none(behind: Behind) -> None:
    assert behind.register(SLAVE, "orders") == ""


def test_order_topics_are_told_to_registering_brokers(behind: Behind) -> None:
    asyncio.run(behind.registry.kv.put(ORDER_TOPICS, "orders", "broker-a:4"))
    assert behind.registry.order_topics() == {"orders": "broker-a:4"}


def test_order_topics_are_kept_from_brokers_where_the_setting_says_so(tmp_path: Path) -> None:
    behind = Behind(tmp_path, return_order_topic_config_to_broker=False)
    asyncio.run(behind.registry.kv.put(ORDER_TOPICS, "orders", "broker-a:4"))
    assert behind.registry.order_topics() == {}


@pytest.mark.parametrize(("enabled", "conf"), [(False, ""), (True, "broker-a:4")])
def test_clients_learn_of_an_order_configuration_only_where_order_messages_are_enabled(
    tmp_path: Path, enabled: bool, conf: str
) -> None:
    behind = Behind(tmp_path, order_message_enable=enabled)
    asyncio.run(behind.registry.kv.put(ORDER_TOPICS, "orders", "broker-a:4"))
    assert behind.registry.order_conf("orders") == conf


def test_a_topic_without_an_order_configuration_has_an_empty_one(tmp_path: Path) -> None:
    assert Behind(tmp_path, order_message_enable=True).registry.order_conf("orders") == ""


def test_other_namespaces_are_no_order_topics(behind: Behind) -> None:
    asyncio.run(behind.registry.kv.put("SOMETHING_ELSE", "orders", "broker-a:4"))
    assert behind.registry.order_topics() == {}


def test_cluster_info_lists_all_replicas_in_order_of_name_and_id(behind: Behind) -> None:
    for identity in (B, SLAVE, A):
        behind.register(identity, "orders")
    found = [(broker.broker_name, dict(broker.addresses)) for broker in behind.registry.cluster_info("")]
    assert found == [
        ("broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.3:10911"}),
        ("broker-b", {0: "10.0.0.2:10911"}),
    ]


# --- cases of RocketMQ's RouteInfoManager that the table alone decides


def topics(*names: str, queues: int = 4, perm: int = 6) -> list[RegisteredTopic]:
    return [RegisteredTopic(name, queues, queues, perm) for name in (*names, "TBW102")]


def route_of(table: RouteTable, topic: str = "orders", now_ms: int = 0) -> dict[str, dict[int, str]]:
    route = table.route(topic, now_ms)
    return {broker.broker_name: dict(broker.addresses) for broker in route.brokers} if route else {}


def test_a_master_that_becomes_a_slave_leaves_id_zero(behind: Behind) -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    demoted = BrokerIdentity("lab", "broker-a", 1, A.address, "boot-a")
    table.register(demoted, topics("orders"), V2, 0)
    assert route_of(table) == {"broker-a": {1: A.address}}


def test_two_brokers_that_swap_their_roles_are_both_known_by_the_new_ones() -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    table.register(SLAVE, topics("orders"), V1, 0)
    promoted = BrokerIdentity("lab", "broker-a", 0, SLAVE.address, "boot-s")
    demoted = BrokerIdentity("lab", "broker-a", 1, A.address, "boot-a")
    table.register(promoted, topics("orders"), V2, 0)
    table.register(demoted, topics("orders"), V2, 0)
    assert route_of(table) == {"broker-a": {0: SLAVE.address, 1: A.address}}


def test_a_slave_adds_no_topic_while_its_master_is_there() -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    table.register(SLAVE, topics("orders", "only-at-the-slave"), V1, 0)
    assert table.route("only-at-the-slave", 0) is None


def test_of_two_slaves_alone_the_smaller_id_brings_the_topics() -> None:
    table = RouteTable()
    second = BrokerIdentity("lab", "broker-a", 2, "10.0.0.4:10911")
    table.register(SLAVE, topics("orders"), V1, 0)
    table.register(second, topics("orders", "only-at-the-second"), V1, 0)
    assert table.route("only-at-the-second", 0) is None
    assert route_of(table) == {"broker-a": {1: SLAVE.address, 2: second.address}}


def test_a_topics_permission_follows_the_newest_version() -> None:
    table = RouteTable()
    table.register(A, topics("orders", perm=6), V1, 0)
    table.register(A, topics("orders", perm=4), V2, 0)
    route = table.route("orders", 0)
    assert route is not None
    assert route.queues[0].perm == 4


@pytest.mark.parametrize(
    "version", [TopicTableVersion(1, 1, 1), TopicTableVersion(0, 9, 1), TopicTableVersion(0, 1, 9)]
)
def test_a_version_differs_when_any_of_its_three_parts_does(version: TopicTableVersion) -> None:
    table = RouteTable()
    table.register(A, topics("orders", queues=4), V1, 0)
    table.register(A, topics("orders", queues=8), version, 0)
    route = table.route("orders", 0)
    assert route is not None
    assert route.queues[0].write_queue_nums == 8


def test_a_clock_that_went_back_is_a_new_version_all_the_same() -> None:
    table = RouteTable()
    table.register(A, topics("orders", queues=8), V2, 0)
    table.register(A, topics("orders", queues=4), V1, 0)
    route = table.route("orders", 0)
    assert route is not None
    assert route.queues[0].write_queue_nums == 4


def test_one_topic_at_two_brokers_has_the_queues_of_each() -> None:
    table = RouteTable()
    table.register(B, topics("orders", queues=2), V1, 0)
    table.register(A, topics("orders", queues=8), V1, 0)
    route = table.route("orders", 0)
    assert route is not None
    assert [(queue.broker_name, queue.read_queue_nums) for queue in route.queues] == [("broker-a", 8), ("broker-b", 2)]


def test_a_broker_that_leaves_takes_only_its_own_queues_with_it() -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    table.register(B, topics("orders", "bills"), V1, 0)
    table.unregister(B)
    assert route_of(table) == {"broker-a": {0: A.address}}
    assert table.route("bills", 0) is None


def test_a_refused_single_topic_leaves_no_trace_of_its_broker() -> None:
    table = RouteTable()
    with pytest.raises(DejamqError, match="register broker failed"):
        table.register(A, [RegisteredTopic("orders", 4, 4, 6)], V1, 0)
    assert table.cluster_info(0) == []
    assert table.topics(0) == []


def test_an_unknown_slave_with_a_single_topic_is_refused_while_its_master_stays() -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    with pytest.raises(DejamqError):
        table.register(SLAVE, [RegisteredTopic("orders", 4, 4, 6)], V1, 0)
    assert route_of(table) == {"broker-a": {0: A.address}}


def test_a_registration_without_any_topic_makes_the_broker_known() -> None:
    table = RouteTable()
    table.register(A, [], V1, 0)
    assert [broker.broker_name for broker in table.cluster_info(0)] == ["broker-a"]
    assert table.topics(0) == []


def test_topics_of_silent_brokers_are_not_listed_before_the_scan_either() -> None:
    table = RouteTable(broker_timeout_ms=10)
    table.register(A, topics("orders"), V1, 0)
    assert table.topics(10) == ["TBW102", "orders"]
    assert table.topics(11) == []


def test_a_listener_that_nobody_advertises_gets_the_ordinary_address() -> None:
    table = RouteTable()
    outside = BrokerIdentity("lab", "broker-a", 0, "172.18.0.5:10911", "", {"localhost": "127.0.0.1:20911"})
    table.register(outside, topics("orders"), V1, 0)
    for listener, address in (("localhost", "127.0.0.1:20911"), ("elsewhere", "172.18.0.5:10911")):
        route = table.route("orders", 0, listener)
        assert route is not None
        assert dict(route.brokers[0].addresses) == {0: address}


def test_a_new_channel_of_one_process_replaces_its_old_one() -> None:
    table = RouteTable()
    table.register(A, topics("orders"), V1, 0)
    table.attach("old", A)
    table.attach("new", A)
    assert table.channel_closed("old") == []
    assert [change.sign for change in table.channel_closed("new")] == ["-"]
