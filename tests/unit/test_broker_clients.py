"""Heartbeats and what they make: groups, retry topics, members, news."""

import json
from pathlib import Path

import pytest
from broker_tables import clients_of, topic_table
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.filters.chosen import FilterFactory
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.connections import peer_text
from dejamq_broker.members.groups import Consumer, GroupSubscription
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroup, SubscriptionGroupTable
from dejamq_broker.tables.topics import TopicTable
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.journal.writer import Journal, Level
from journalled import journalled

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def clock_ms() -> int:
    return 1000


def groups_in(directory: Path, *, auto_create: bool = True) -> SubscriptionGroupTable:
    table = SubscriptionGroupTable(directory / "subscriptionGroup.json", clock_ms, auto_create=auto_create)
    table.load()
    return table


def clients_in(
    directory: Path, *, auto_create: bool = True, notify: bool = True, sql: bool = True
) -> tuple[Clients, TopicTable]:
    journal = Journal(directory / "j.jsonl", role="broker", process="b", boot_id="x", level=Level.FORENSIC)
    topics = topic_table(directory / "topics.json", clock_ms)
    config = BrokerConfig(notify_consumer_ids_changed_enable=notify)
    groups = groups_in(directory, auto_create=auto_create)
    return clients_of(topics, groups, journal, clock_ms, config, FilterFactory(sql=sql).of), topics


def events(directory: Path) -> list[tuple[str, str, str]]:
    lines = journalled(directory / "j.jsonl")
    return [(line["client_id"], line.get("change", "list"), line.get("reason", "")) for line in lines]


def test_a_first_heartbeat_makes_group_retry_topic_and_member(tmp_path: Path) -> None:
    clients, topics = clients_in(tmp_path)
    told: list[str] = []
    channel = clients.open(told.append)
    clients.heartbeat(channel, Asker("c1", "boot1"), [Consumer("g")])
    assert topics.require("%RETRY%g").write_queue_nums == 1
    assert groups_in(tmp_path).known("g").retry_max_times == 16
    assert clients.members("g", Asker("c9", "boot9", 3)) == ["c1"]
    assert told == ["g"]
    clients.close(channel)
    assert events(tmp_path) == [("c1", "+", "heartbeat"), ("c9", "list", ""), ("c1", "-", "close")]


def test_two_processes_with_one_client_id_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clients, _ = clients_in(tmp_path)
    for boot_id in ("boot1", "boot2"):
        clients.heartbeat(clients.open(lambda group: None), Asker("same", boot_id), [Consumer("g")])
    assert "client_id_clash group=g client=same" in caplog.text


def test_a_client_that_comes_back_while_its_old_channel_is_half_open_is_one_member(tmp_path: Path) -> None:
    clients, _ = clients_in(tmp_path)
    told: list[str] = []
    other, old, new = (clients.open(told.append) for _ in range(3))
    clients.heartbeat(other, Asker("c2", "boot2"), [Consumer("g")])
    clients.heartbeat(old, Asker("c1", "boot1"), [Consumer("g")])
    clients.heartbeat(new, Asker("c1", "boot1"), [Consumer("g")])
    assert clients.members("g", Asker("c2", "boot2")) == ["c2", "c1"]
    clients.close(old)
    assert clients.members("g", Asker("c2", "boot2")) == ["c2", "c1"]
    reasons = [event[1:] for event in events(tmp_path) if event[0] == "c1"]
    assert reasons == [("+", "heartbeat"), ("-", "reconnect"), ("+", "heartbeat")]


@pytest.mark.parametrize("sql", [True, False])
def test_a_client_is_told_of_a_filter_that_its_pulls_will_be_refused_with(tmp_path: Path, sql: bool) -> None:
    """RocketMQ registers it without a word; nothing is refused here either, as the client's other topics work."""
    clients, _ = clients_in(tmp_path, sql=sql)
    good, bad = GroupSubscription("orders", "paid || open"), GroupSubscription("payments", "amount >", "SQL92")
    channel = clients.open(lambda group: None)
    assert clients.heartbeat(channel, Asker("c1", "boot1"), [Consumer("g", subscriptions=(good,))]) == ""
    told = clients.heartbeat(channel, Asker("c1", "boot1"), [Consumer("g", subscriptions=(good, bad))])
    assert told.startswith("topic 'payments' of group 'g': ")
    assert ("does not fit at position 8" if sql else "enable_property_filter") in told
    assert clients.groups.subscription("g", "payments") == bad


def test_news_can_be_switched_off(tmp_path: Path) -> None:
    clients, _ = clients_in(tmp_path, notify=False)
    told: list[str] = []
    clients.heartbeat(clients.open(told.append), Asker("c1", "boot1"), [Consumer("g")])
    assert told == []


def test_without_auto_creation_an_unknown_group_is_refused(tmp_path: Path) -> None:
    clients, _ = clients_in(tmp_path, auto_create=False)
    with pytest.raises(DejamqError) as caught:
        clients.heartbeat(clients.open(lambda group: None), Asker("c1", "boot1"), [Consumer("g")])
    assert caught.value.code is Code.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("kind", ["clean", "crash"])
def test_a_real_brokers_groups_are_read_and_written_back_equal(tmp_path: Path, kind: str) -> None:
    source = GOLDEN / kind / "store/config/subscriptionGroup.json"
    path = tmp_path / "subscriptionGroup.json"
    path.write_bytes(source.read_bytes())
    groups_in(tmp_path).require("new")
    golden = json.loads(source.read_text())["subscriptionGroupTable"]
    written = json.loads(path.read_text())["subscriptionGroupTable"]
    assert {name: written[name] for name in golden} == golden
    assert set(written["new"]) == set(golden["GoldenReader"])


def test_built_in_groups_need_no_entry(tmp_path: Path) -> None:
    assert groups_in(tmp_path, auto_create=False).require("TOOLS_CONSUMER") == SubscriptionGroup("TOOLS_CONSUMER")


def test_connections_name_role_group_address_and_version_until_the_channel_ends(tmp_path: Path) -> None:
    clients, _ = clients_in(tmp_path)
    one, other = (clients.open(lambda group: None, address=f"10.0.0.{n}:4711") for n in (1, 2))
    clients.peer(one).version = "0.1.0"
    clients.heartbeat(one, Asker("c1", "boot1"), [Consumer("h"), Consumer("g")])
    clients.heartbeat(other, Asker("c2", "boot2"), [Consumer("g")], ["g", "p"])
    lines = [(each.role, each.group, each.client_id, each.address, each.version) for each in clients.connections()]
    assert lines == [
        ("producer", "g", "c2", "10.0.0.2:4711", ""), ("consumer", "g", "c1", "10.0.0.1:4711", "0.1.0"),
        ("consumer", "g", "c2", "10.0.0.2:4711", ""), ("consumer", "h", "c1", "10.0.0.1:4711", "0.1.0"),
        ("producer", "p", "c2", "10.0.0.2:4711", ""),
    ]  # fmt: skip
    assert {each.last_heartbeat_ms for each in clients.connections()} == {1000}
    assert [each.client_id for each in clients.connections("p")] == ["c2"]
    clients.close(other)
    assert {each.client_id for each in clients.connections()} == {"c1"}
    assert clients.peer(other).address == ""


@pytest.mark.parametrize(
    ("peer", "text"),
    [("ipv4:127.0.0.1:4711", "127.0.0.1:4711"), ("ipv6:%5B::1%5D:4711", "[::1]:4711"), ("unix:/s", "unix:/s")],
)
def test_the_other_end_is_told_as_host_and_port(peer: str, text: str) -> None:
    assert peer_text(peer) == text
