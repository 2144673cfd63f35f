"""Members of one group that do not do the same are told so, with both sides."""

from pathlib import Path

import pytest
from broker_tables import clients_of, topic_table
from dejamq_broker.members.clients import Clients
from dejamq_broker.members.groups import Consumer, GroupSubscription
from dejamq_broker.tables.offsets import Asker
from dejamq_broker.tables.subscription_groups import SubscriptionGroupTable
from dejamq_proto.journal.writer import Journal, Level

ALIKE = {
    "model": "CLUSTERING", "subscriptions": (GroupSubscription("orders", "a || b"),), "handlers": "concurrent",
    "consume_from": "LAST_OFFSET", "allocation": "averagely", "handover": "graceful",
}  # fmt: skip


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    groups = SubscriptionGroupTable(tmp_path / "groups.json", lambda: 0, auto_create=True)
    journal = Journal(None, role="broker", process="", boot_id="", level=Level.OFF)
    return clients_of(topic_table(tmp_path / "topics.json", lambda: 0), groups, journal, lambda: 0)


def beat(clients: Clients, channel: int, client_id: str, **differently: object) -> str:
    consumer = Consumer("g", **ALIKE | differently)  # type: ignore[arg-type]  # as named
    return clients.heartbeat(channel, Asker(client_id, f"{client_id}-boot"), [consumer])


@pytest.mark.parametrize(
    ("differently", "what"),
    [
        ({"model": "BROADCASTING"}, "b has the model BROADCASTING, a has CLUSTERING"),
        ({"handlers": "in order"}, "b has the handlers in order, a has concurrent"),
        ({"consume_from": "FIRST_OFFSET"}, "b has the start FIRST_OFFSET, a has LAST_OFFSET"),
        ({"handover": "immediate"}, "b has the hand-over immediate, a has graceful"),
        ({"allocation": "circle"}, "b has the allocation circle, a has averagely"),
        (
            {"subscriptions": (GroupSubscription("orders", "a"),)},
            "b has the subscriptions orders (TAG a), a has orders (TAG a || b)",
        ),
        (
            {"subscriptions": (GroupSubscription("invoices"), GroupSubscription("orders", "a || b"))},
            "b has the subscriptions invoices (TAG *), orders (TAG a || b), a has orders (TAG a || b)",
        ),
    ],
)
def test_a_member_that_does_something_else_is_told_and_so_is_the_log(
    clients: Clients, caplog: pytest.LogCaptureFixture, differently: dict[str, object], what: str
) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    assert beat(clients, one, "a") == ""
    assert beat(clients, other, "b", **differently) == f"members of group 'g' differ: {what}"
    assert what in caplog.text
    assert "a has" in beat(clients, one, "a"), "the first one learns it with its next heartbeat"


def test_members_that_do_the_same_are_not_told_anything(clients: Clients) -> None:
    channels = [clients.open(lambda group: None) for _ in range(3)]
    assert [beat(clients, channel, f"c{channel}") for channel in channels * 2] == [""] * 6


def test_the_log_has_a_difference_once_and_not_at_each_heartbeat(
    clients: Clients, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    beat(clients, one, "a")
    for _ in range(3):
        beat(clients, other, "b", handlers="in order")
    assert caplog.text.count("group_differs") == 1
    beat(clients, other, "b")
    beat(clients, other, "b", handlers="in order")
    assert caplog.text.count("group_differs") == 2, "it had ended in between"


def test_a_difference_ends_with_the_member(clients: Clients) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    beat(clients, one, "a")
    beat(clients, other, "b", handlers="in order")
    clients.close(one)
    assert beat(clients, other, "b", handlers="in order") == ""


def test_what_a_client_does_not_tell_is_no_difference(clients: Clients) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    beat(clients, one, "a")
    assert beat(clients, other, "b", handlers="", consume_from="", allocation="") == ""


def test_members_of_different_groups_may_do_as_they_like(clients: Clients) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    beat(clients, one, "a")
    consumer = Consumer("h", **ALIKE | {"handlers": "in order"})  # type: ignore[arg-type]  # as named
    assert clients.heartbeat(other, Asker("b", "b-boot"), [consumer]) == ""


def test_a_retry_topic_that_only_some_subscribe_to_is_no_difference(clients: Clients) -> None:
    one, other = (clients.open(lambda group: None) for _ in range(2))
    assert beat(clients, one, "a") == ""
    orders = GroupSubscription("orders", "a || b")
    assert beat(clients, other, "b", subscriptions=(orders, GroupSubscription("%RETRY%g"))) == ""
