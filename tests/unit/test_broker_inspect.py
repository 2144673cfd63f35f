"""What operators are told: numbers by RocketMQ's names, a group's progress, single records."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_tables import clients_of
from dejamq_broker.base.identity import Site
from dejamq_broker.members.groups import Consumer
from dejamq_broker.operators.queries import GroupProgress, Inspector
from dejamq_broker.tables.offsets import Asker, Position
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.records.record import decode


class Inspected:
    def __init__(self, parts: Parts) -> None:
        site = Site(cluster="c", broker_name="broker-a", broker_id=0, boot_id="b0", address="10.0.0.1:10911")
        self.parts, self.now_ms = parts, 1000
        self.clients = clients_of(parts.topics, parts.groups, parts.journal, clock_ms)
        self.inspector = Inspector(
            parts.store, parts.offsets, self.clients, site, lambda: self.now_ms, measured=dict, replication=dict
        )

    def join(self, client_id: str, boot_id: str, group: str = "g") -> None:
        channel = self.clients.open(lambda group: None)
        self.clients.heartbeat(channel, Asker(client_id, boot_id, 1), [Consumer(group)])


@pytest.fixture
def inspected(tmp_path: Path) -> Iterator[Inspected]:
    with parts_in(tmp_path) as parts:
        yield Inspected(parts)


def test_a_broker_tells_who_it_is(inspected: Inspected) -> None:
    told = inspected.inspector.runtime()
    assert (told["brokerName"], told["brokerId"], told["clusterName"]) == ("broker-a", "0", "c")
    assert (told["brokerAddr"], told["bootId"]) == ("10.0.0.1:10911", "b0")


def test_every_value_is_a_text(inspected: Inspected) -> None:
    assert all(type(value) is str for value in inspected.inspector.runtime().values())


def test_how_long_it_runs_follows_the_clock(inspected: Inspected) -> None:
    inspected.now_ms += 250
    told = inspected.inspector.runtime()
    assert (told["bootTimestamp"], told["runtimeMs"]) == ("1000", "250")


def test_the_logs_extent_grows_with_what_is_stored(inspected: Inspected) -> None:
    assert inspected.inspector.runtime()["commitLogMaxOffset"] == "0"
    inspected.parts.send("orders", b"x")
    told = inspected.inspector.runtime()
    assert int(told["commitLogMaxOffset"]) == inspected.parts.store.log_max > 0
    assert told["commitLogMinOffset"] == "0"


def test_when_everything_is_in_its_queue_nothing_is_behind(inspected: Inspected) -> None:
    inspected.parts.send("orders", b"x")
    inspected.parts.settle()
    assert inspected.inspector.runtime()["dispatchBehindBytes"] == "0"


def test_groups_with_members_are_named_in_order(inspected: Inspected) -> None:
    inspected.join("me", "b1", "zebra")
    inspected.join("me", "b1", "ant")
    assert inspected.inspector.runtime()["consumerGroups"] == "ant,zebra"


def test_one_client_id_of_two_processes_is_told_as_a_clash(inspected: Inspected) -> None:
    inspected.join("me", "b1")
    assert inspected.inspector.runtime()["clientIdClashes"] == ""
    inspected.join("me", "b2")
    assert inspected.inspector.runtime()["clientIdClashes"] == "g:me"


def test_progress_shows_the_committed_offset_beside_the_queues_ends(inspected: Inspected) -> None:
    inspected.parts.send("orders", b"a", b"b", b"c")
    inspected.parts.settle()
    inspected.parts.offsets.commit(Position("g", "orders", 0), 2, by="sync")
    assert inspected.inspector.progress("g") == [GroupProgress("orders", 0, 2, 0, 3)]


def test_another_groups_progress_is_not_shown(inspected: Inspected) -> None:
    inspected.parts.offsets.commit(Position("g", "orders", 0), 2, by="sync")
    assert inspected.inspector.progress("h") == []


def test_progress_in_a_queue_that_has_nothing_is_shown_all_the_same(inspected: Inspected) -> None:
    inspected.parts.offsets.commit(Position("g", "gone", 3), 7, by="sync")
    assert inspected.inspector.progress("g") == [GroupProgress("gone", 3, 7, 0, 0)]


def test_a_record_is_given_as_it_is_stored(inspected: Inspected) -> None:
    place = inspected.parts.send("orders", b"a", b"b")
    raw = inspected.inspector.record(int(place.span_log_offsets[0]))
    assert decode(raw).body == b"a"


@pytest.mark.parametrize("log_offset", [-1, 1, 1 << 50])
def test_where_no_record_begins_none_is_found(inspected: Inspected, log_offset: int) -> None:
    inspected.parts.send("orders", b"a")
    with pytest.raises(DejamqError) as caught:
        inspected.inspector.record(log_offset)
    assert caught.value.code is Code.QUERY_NOT_FOUND
