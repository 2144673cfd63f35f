"""A slave has its master's log, byte for byte, and its own queues made of it."""

import random
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, dialled, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_lab.cluster.relay import DOWN, UP
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_proto import admin_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, DejamqError
from ha_pair import (
    QUICK,
    a_link,
    a_master,
    a_pair,
    a_pair_with_topic,
    a_slave,
    following,
    replica_events,
    same,
    send,
    told,
)


async def fill(master: Broker, count: int = 300, *, size: int = 3000, seed: int = 0) -> None:
    """Runs to several queues, of messages of many sizes."""
    rng = random.Random(seed)
    async with Wire(master.address) as wire:
        for _ in range(count // 10):
            await send(wire, 10, queue_id=rng.randrange(3), size=rng.randrange(size))


async def test_a_slave_follows_its_master_from_the_beginning(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master)
        await same(master, slave)
        assert slave.domain.store.max_offset("T", 1) == master.domain.store.max_offset("T", 1) > 0


async def test_a_slave_that_comes_later_copies_the_last_file_only(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master:
        await fill(master, 2000)
        assert master.domain.store.log_max > 2 << 20
        async with a_slave(tmp_path, master.address, journal_dir=str(tmp_path / "j")) as slave:
            await same(master, slave)
            assert slave.domain.store.log_min == master.domain.store.log_max // (1 << 20) << 20
        assert [event["change"] for event in replica_events(tmp_path / "j")][:2] == ["begun", "connected"]


async def test_a_slave_that_comes_later_copies_everything_when_it_is_told_to(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master:
        await fill(master, 2000)
        async with a_slave(tmp_path, master.address, ha_full_copy=True) as slave:
            await same(master, slave)
            assert slave.domain.store.log_min == 0


async def test_a_slave_goes_on_where_it_was_after_a_restart_of_either(tmp_path: Path) -> None:
    for seed in range(2):
        async with a_master(tmp_path) as master:
            await fill(master, seed=seed)
            async with a_slave(tmp_path, master.address) as slave:
                await same(master, slave)
            await fill(master, seed=10 + seed)
            async with a_slave(tmp_path, master.address) as slave:
                await same(master, slave)


async def test_slaves_of_one_master_follow_it_each_for_itself(tmp_path: Path) -> None:
    async with (
        a_pair(tmp_path) as (master, first),
        running(tmp_path / "other", broker_id=2, ha_master_address=master.address, **QUICK) as second,
    ):
        await following(second)
        await fill(master)
        await same(master, first)
        await same(master, second)
        assert told(master)["slaves"] == "2"


async def test_a_slave_finds_its_master_by_a_name_server(tmp_path: Path) -> None:
    namesrv = NameServer(NamesrvConfig(listen="127.0.0.1:0"))
    address = await namesrv.start()
    try:
        settings = QUICK | {"namesrv": address}
        async with running(tmp_path / "slave", broker_id=1, **settings) as slave:
            assert told(slave)["following"] == "false"
            async with running(tmp_path / "master", **settings) as master:
                await fill(master)
                await same(master, slave)
                assert told(slave)["masterAddr"] == dialled(master)
    finally:
        await namesrv.close()


async def test_a_slave_takes_no_messages_and_makes_no_topic(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave), Wire(slave.address) as wire:
        assert (await send(wire)).code == Code.SERVICE_NOT_AVAILABLE
        with pytest.raises(DejamqError, match="send to its master"):
            await wire.send_back("readers", 0)
        assert slave.domain.store.log_max == 0
        assert "T" not in {config.topic_name for config in slave.domain.tables.topics}
        assert told(master)["slave.1.lagBytes"] == "0"


@pytest.mark.parametrize("request_", [
    ("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="T")),
    ("UpdateTopic", admin_pb2.UpdateTopicRequest(topic="T", perm=4)),
    ("UpdateGroup", admin_pb2.UpdateGroupRequest(group=admin_pb2.GroupConfig(group="readers", retry_max_times=3))),
    ("DeleteGroup", admin_pb2.DeleteGroupRequest(group="readers")),
    ("Forbid", admin_pb2.ForbidRequest(group="readers", topic="T", forbidden=True)),
    ("ResetOffsets", admin_pb2.ResetOffsetsRequest(group="readers", topic="T")),
    ("CloneOffsets", admin_pb2.CloneOffsetsRequest(source="readers", target="others", topic="T")),
])  # fmt: skip
async def test_what_a_slave_copies_is_changed_at_its_master_only(tmp_path: Path, request_: tuple[str, Any]) -> None:
    async with a_pair(tmp_path) as (master, slave), Wire(slave.address) as wire:
        await fill(master)
        await same(master, slave)
        name, request = request_
        with pytest.raises(DejamqError, match="at its master") as refused:
            await wire.call(getattr(AdminStub(wire.channel), name), request)
        assert refused.value.code == Code.SERVICE_NOT_AVAILABLE
        assert slave.domain.store.max_offset("T", 1) > 0


async def test_messages_are_read_at_a_slave_and_offsets_kept_there(tmp_path: Path) -> None:
    async with a_pair_with_topic(tmp_path, "T") as (master, slave):
        await fill(master)
        await same(master, slave)
        async with Wire(slave.address) as wire, Wire(master.address) as direct:
            found, there = records_of(await wire.pull("T")), records_of(await direct.pull("T"))
            assert [record.body for record in found] == [record.body for record in there] != []
            await wire.commit("readers", "T", 5)
            assert await wire.committed("readers", "T") == 5


async def test_held_pulls_at_a_slave_are_answered_when_the_master_gets_a_message(tmp_path: Path) -> None:
    async with (
        a_pair_with_topic(tmp_path, "T") as (master, slave),
        Wire(master.address) as wire,
        Wire(slave.address) as reader,
    ):
        await send(wire)
        await same(master, slave)
        stream = reader.pull_stream()
        await stream.write(reader.pull_request("T", 1, suspend_ms=9000))
        await send(wire)
        assert await stream.read()


async def test_a_topic_that_was_deleted_and_made_again_is_that_at_the_slave_too(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave), Wire(master.address) as wire:
        await send(wire, 20)
        await send(wire, 10, queue_id=1)
        master.domain.store.delete_topic("T")
        await send(wire, 5)
        await same(master, slave)
        assert (slave.domain.store.max_offset("T", 0), slave.domain.store.max_offset("T", 1)) == (5, 0)
    async with a_pair(tmp_path) as (master, slave):
        await same(master, slave)


async def test_a_slave_far_behind_catches_up_from_the_disk_while_messages_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dejamq_broker.store.replica.log_copy.RECENT_BYTES", 100_000)
    async with a_master(tmp_path) as master:
        await fill(master, 3000)
        async with a_slave(tmp_path, master.address, ha_full_copy=True) as slave:
            await fill(master, 500, seed=1)
            await same(master, slave)


async def test_a_slave_that_does_not_read_costs_its_master_no_memory(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path, ha_housekeeping_interval_ms=60_000) as master,
        a_link(master.address) as link,
        a_slave(tmp_path, link.address, ha_housekeeping_interval_ms=60_000) as slave,
    ):
        await following(slave)
        link.delay(60_000)
        async with Wire(master.address) as wire:
            for _ in range(40):
                await send(wire, 10, size=100_000)
        (position,) = master.domain.paths.replication.table.slaves()
        assert master.domain.store.log_max > 40_000_000
        assert position.sent - slave.domain.store.log_max < 16_000_000
        link.cut()


@pytest.mark.parametrize("lost", [(UP,), (DOWN,), (UP, DOWN)])
async def test_a_connection_that_is_half_open_is_given_up_by_both_and_made_again(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    async with a_master(tmp_path) as master, a_link(master.address) as link, a_slave(tmp_path, link.address) as slave:
        await following(slave)
        link.lose(*lost)
        await fill(master)
        await until(lambda: told(master)["slaves"] == "0" and told(slave)["following"] == "false")
        link.heal()
        await same(master, slave)


async def test_a_cut_link_is_made_again_with_growing_pauses_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_master(tmp_path) as master, a_link(master.address) as link, a_slave(tmp_path, link.address) as slave:
        await following(slave)
        link.cut()
        await fill(master)
        await until(lambda: told(slave)["following"] == "false")
        first = told(slave)["followingTrouble"]
        link.heal()
        await same(master, slave)
        assert link.address in first or "master" in first
        lost = [record for record in caplog.records if "master_lost" in record.getMessage()]
        assert len(lost) <= 1


async def test_a_slow_link_makes_a_slave_late_and_it_says_by_how_much(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master, a_link(master.address) as link, a_slave(tmp_path, link.address) as slave:
        await following(slave)
        link.delay(300)
        await fill(master)
        assert int(told(master)["slave.1.lagBytes"]) > 0
        await until(lambda: int(told(master)["slave.1.lagMs"]) > 0)
        link.heal()
        await same(master, slave)
        await until(lambda: told(master)["slave.1.lagBytes"] == told(master)["slave.1.lagMs"] == "0")
        assert (told(slave)["lagBytes"], told(slave)["lagMs"]) == ("0", "0")


async def test_a_broker_follows_no_master_of_another_name_and_no_slave(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        other = {"broker_id": 1} | QUICK
        async with running(tmp_path / "b", broker_name="broker-b", ha_master_address=master.address, **other) as wrong:
            await until(lambda: "no master of broker-b" in told(wrong)["followingTrouble"])
        async with running(tmp_path / "c", ha_master_address=slave.address, **(other | {"broker_id": 2})) as wrong:
            await until(lambda: "follow its master" in told(wrong)["followingTrouble"])
        assert told(master)["slaves"] == "1"


async def test_the_journals_of_both_tell_who_followed_whom_and_how_far(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "journal_dir": str(tmp_path / "j"), "journal_level": "forensic",
        "ha_housekeeping_interval_ms": 60_000,  # a machine that stands still for a moment breaks no link
    }  # fmt: skip
    async with a_master(tmp_path, **settings) as master:
        async with a_slave(tmp_path, master.address, **settings) as slave:
            await following(slave)
            await fill(master)
            await same(master, slave)
            end = master.domain.store.log_max
            await until(lambda: told(master)["slave.1.lagBytes"] == "0")
        await until(lambda: told(master)["slaves"] == "0")
    lines = [(line.get("broker_id", 0), line["change"]) for line in replica_events(tmp_path / "j")]
    assert {(0, "connected"), (1, "connected"), (0, "position"), (0, "lost")} <= set(lines)
    (lost,) = [line for line in replica_events(tmp_path / "j") if (line["change"], line["broker_id"]) == ("lost", 0)]
    assert (lost["peer_id"], lost["log_offset"]) == (1, end)


async def test_a_slave_whose_next_messages_expire_meanwhile_is_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    def expired() -> bool:
        """Whether the master ended the stream for that. The slave hears it only if none of its writes failed before."""
        lost = [event for event in replica_events(journal) if event["change"] == "lost"]
        return any("has expired" in event["reason"] for event in lost)

    patient = {"ha_housekeeping_interval_ms": 20_000}  # a busy machine is no silence: it would be another connection
    async with a_master(tmp_path, journal_dir=str(journal), journal_level="forensic", **patient) as master:
        await fill(master, 20)
        async with a_slave(tmp_path, master.address, **patient) as slave:
            await same(master, slave)
            replication: Any = master.domain.paths.replication
            (position,) = replication.table.slaves()
            replication.acknowledge = lambda feed, log_offset: None  # one that comes now would be beyond the next line
            position.sent = -1  # as if its place had expired
            await fill(master, 10)
            await until(expired)
            await same(master, slave)
