"""The end of topics and groups, and who is still connected then."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_parts import Parts, clock_ms, parts_in
from broker_tables import clients_of
from dejamq_broker.base.counts import Counts
from dejamq_broker.members.groups import Consumer
from dejamq_broker.members.producers import ProducerTable
from dejamq_broker.operators.deletion import Lives
from dejamq_broker.tables.offsets import Asker, Position
from dejamq_proto.codes import DejamqError


class Ended:
    def __init__(self, parts: Parts) -> None:
        self.parts, self.woken = parts, list[tuple[str, int]]()
        self.lives = Lives(
            parts.topics, parts.groups, parts.offsets, Counts(),
            queues=parts.store, wake=self.woken.extend, stored=parts.store.queues,
        )  # fmt: skip


@pytest.fixture
def ended(tmp_path: Path) -> Iterator[Ended]:
    with parts_in(tmp_path) as parts:
        yield Ended(parts)


async def test_a_topic_takes_its_queues_and_offsets_along_and_held_pulls_are_woken(ended: Ended) -> None:
    parts = ended.parts
    parts.send("orders", b"a", b"b")
    parts.settle()
    for topic in ("orders", "refunds"):
        parts.offsets.commit(Position("g", topic, 0), 1, by="sync")
    assert await ended.lives.delete_topic("orders") is True
    assert parts.topics.get("orders") is None
    assert parts.store.max_offset("orders", 0) == 0
    assert list(parts.offsets.of_group("g")) == [("refunds", 0, 1)]
    assert ended.woken == [("orders", number) for number in range(4)]


async def test_what_a_crash_left_of_a_deleted_topic_goes_with_the_same_call(ended: Ended) -> None:
    """The table is written first: after that nobody is led to what is left."""
    parts = ended.parts
    parts.send("orders", b"a")
    parts.settle()
    parts.offsets.commit(Position("g", "orders", 0), 1, by="sync")
    parts.topics.delete("orders")
    assert parts.store.max_offset("orders", 0) == 1
    assert await ended.lives.delete_topic("orders") is False
    assert parts.store.max_offset("orders", 0) == 0
    assert list(parts.offsets.of_group("g")) == []


async def test_what_is_left_of_topics_that_are_not_in_the_table_is_cleaned_away(ended: Ended) -> None:
    parts = ended.parts
    for topic in ("lost", "kept"):
        parts.send(topic, b"a")
        parts.offsets.commit(Position("g", topic, 0), 1, by="sync")
    parts.settle()
    parts.topics.delete("lost")
    assert await ended.lives.clean_unused() == ["lost"]
    assert await ended.lives.clean_unused() == []
    assert parts.store.queues() == [("kept", 0)]
    assert list(parts.offsets.of_group("g")) == [("kept", 0, 1)]


async def test_a_topic_that_cannot_be_taken_out_of_the_file_is_gone_until_a_restart_and_that_is_told(
    ended: Ended,
) -> None:
    parts = ended.parts
    parts.send("orders", b"a")
    parts.settle()
    with pytest.raises(DejamqError, match="belongs to the broker itself"):
        await ended.lives.delete_topic("SCHEDULE_TOPIC_XXXX")
    folder = parts.directory / "config"
    folder.rename(parts.directory / "away")
    folder.write_text("something else")
    await ended.lives.delete_topic("orders")
    with pytest.raises(DejamqError, match="cannot be written"):
        await parts.topics.kept()
    folder.unlink()
    (parts.directory / "away").rename(folder)
    await parts.topics.kept()
    assert (parts.topics.get("orders"), parts.store.max_offset("orders", 0)) == (None, 0)


@pytest.mark.parametrize(("remove_offsets", "left"), [(True, []), (False, [("orders", 0, 1)])])
def test_a_group_takes_its_offsets_along_when_that_is_wanted(
    ended: Ended, remove_offsets: bool, left: list[tuple[str, int, int]]
) -> None:
    parts = ended.parts
    parts.groups.require("g")
    parts.offsets.commit(Position("g", "orders", 0), 1, by="sync")
    assert ended.lives.delete_group("g", remove_offsets=remove_offsets) is True
    assert ended.lives.delete_group("g", remove_offsets=remove_offsets) is False
    assert list(parts.offsets.of_group("g")) == left


def test_producers_that_share_a_client_id_are_a_clash_in_log_and_journal(
    ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    parts = ended.parts
    clients = clients_of(parts.topics, parts.groups, parts.journal, clock_ms)
    for boot_id, address in (("b1", "10.0.0.1:1"), ("b1", "10.0.0.1:2"), ("b2", "10.0.0.2:1")):
        channel = clients.open(lambda group: None, address=address)
        clients.heartbeat(channel, Asker("same", boot_id), [], ["shop"])
    (clash,) = clients.clashes()
    assert (clash.role, clash.group, clash.boot_ids, clash.present) == ("producer", "shop", ["b1", "b2"], True)
    assert caplog.text.count("client_id_clash group=shop client=same role=producer") == 1
    (line,) = parts.events("CLIENT_CLASH")
    assert (line["member_role"], line["client_id"], line["boot_ids"]) == ("producer", "same", ["b1", "b2"])
    clients.close(channel)
    assert [one.present for one in clients.clashes()] == [False]


def test_a_consumer_that_reconnects_is_no_clash_with_itself(ended: Ended) -> None:
    parts = ended.parts
    clients = clients_of(parts.topics, parts.groups, parts.journal, clock_ms)
    for _ in range(2):
        clients.heartbeat(clients.open(lambda group: None), Asker("me", "b1"), [Consumer("g")])
    assert clients.clashes() == []
    assert parts.events("CLIENT_CLASH") == []


def test_a_silent_channel_of_a_shared_client_id_goes_and_the_live_one_stays() -> None:
    producers = ProducerTable()
    producers.heartbeat(1, "same", ["shop"], 0, "b1")
    producers.heartbeat(2, "same", ["shop"], 100_000, "b2")
    assert producers.expire(130_000, 120_000) == ["same"]
    assert producers.channel_of("same") == 2
    assert producers.users("shop", "same") == [(2, "b2")]


def test_a_producer_that_only_says_that_it_lives_is_no_news() -> None:
    producers = ProducerTable()
    assert producers.heartbeat(1, "p", ["shop"], 0) is True
    assert producers.heartbeat(1, "p", ["shop"], 30_000) is False
    assert producers.heartbeat(1, "p", ["shop", "till"], 60_000) is True
    assert producers.heartbeat(2, "c", [], 60_000) is False
