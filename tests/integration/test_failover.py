"""A slave takes its lost master's place by itself, and a master that comes back writes nothing beside it."""

import asyncio
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, broker_config, dialled, running, until
from broker_wire import records_of as pulled
from dejamq_broker.app import Broker
from dejamq_broker.base.config import ASYNC_MASTER, SLAVE, SYNC_MASTER, BrokerConfig
from dejamq_broker.doors.v1.replication import MasterLink
from dejamq_broker.failover import FailoverBroker
from dejamq_broker.replication import metadata
from dejamq_broker.replication.mastership import Role, RoleFile
from dejamq_broker.store.files.errors import StoreLocked
from dejamq_broker.tables.offsets import Position
from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig
from dejamq_namesrv.masterships import FILE_NAME
from dejamq_proto import admin_pb2
from dejamq_proto.admin_pb2_grpc import AdminStub
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.common_pb2 import TopicConfig
from dejamq_proto.wire.replication import LogSlice
from failover_set import LEASE_MS, ReplicaSet, a_set, send
from ha_pair import QUICK, replica_events
from store_making import records_of


def bodies(replicas: ReplicaSet, name: str) -> list[bytes]:
    return [record.body for record in records_of(replicas.broker(name).domain.store, "T", 0)]


async def test_a_slave_takes_over_and_the_master_that_comes_back_follows_it(tmp_path: Path) -> None:
    async with a_set(tmp_path, broker_role=SYNC_MASTER) as replicas:
        assert (await send(replicas.broker("a"), b"1")).code == Code.SUCCESS
        await replicas.leave("a")
        await until(lambda: replicas.is_master("b"), 30)
        answer = await send(replicas.broker("b"), b"2")
        assert answer.code == Code.SLAVE_NOT_AVAILABLE, "nobody follows it yet"
        await replicas.start("a")
        assert replicas.broker("a").site.broker_id == 1
        await replicas.follows("a")
        assert (await send(replicas.broker("b"), b"3")).code == Code.SUCCESS
        assert (await send(replicas.broker("a"), b"beside")).code == Code.SERVICE_NOT_AVAILABLE
        await replicas.follows("a")
        assert bodies(replicas, "a") == bodies(replicas, "b") == [b"1", b"2", b"3"]
        assert replicas.masters() == ["b"]
        told = replicas.broker("b").replication_info()
        assert (told["masterEpoch"], told["masterLease"]) == ("2", "true")
    changes = [event["change"] for event in replica_events(tmp_path / "journal")]
    assert {"took_over", "promoted"} <= set(changes)


async def test_a_topic_that_was_made_just_before_is_there_at_the_new_master(tmp_path: Path) -> None:
    """Its messages are in the copied log; the table of topics is copied only now and then."""
    async with a_set(tmp_path, slave_sync_interval_ms=600_000) as replicas:
        assert (await send(replicas.broker("a"), b"1")).code == Code.SUCCESS
        await replicas.follows("b")
        await replicas.leave("a")
        await until(lambda: replicas.is_master("b"), 30)
        assert replicas.broker("b").domain.tables.topics.get("T") is not None
        assert bodies(replicas, "b") == [b"1"]


class SlowSlave:
    """Slaves take what comes only while it is ``open``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = asyncio.Event()
        self.open.set()
        read = MasterLink.read

        async def read_later(link: MasterLink) -> LogSlice:
            found = await read(link)
            await self.open.wait()
            return found

        monkeypatch.setattr(MasterLink, "read", read_later)


async def read_on(broker: Broker, queue_offset: int) -> tuple[list[bytes], int]:
    """What a consumer gets from this queue offset on, and where it goes on."""
    async with Wire(dialled(broker)) as wire:
        answer = await wire.pull("T", queue_offset)
    return [record.body for record in pulled(answer)], answer.next_offset


async def test_consumers_are_given_only_what_the_slave_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slave = SlowSlave(monkeypatch)
    async with a_set(tmp_path, ha_housekeeping_interval_ms=60_000) as replicas:
        master = replicas.broker("a")
        await send(master, b"1")
        await replicas.follows("b")
        slave.open.clear()
        assert (await send(master, b"2")).code == Code.SUCCESS
        assert await read_on(master, 0) == ([b"1"], 1)
        async with Wire(dialled(master)) as wire:
            waiting = asyncio.create_task(wire.pull("T", 1, suspend_ms=20_000))
            await until(lambda: master.domain.long_poll.waiting == 1)
            slave.open.set()
            assert [record.body for record in pulled(await waiting)] == [b"2"]


async def test_what_the_new_master_stores_is_passed_over_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """It takes the queue offsets of messages that only the old master had."""
    slave = SlowSlave(monkeypatch)
    async with a_set(tmp_path, failover_lease_ms=2 * LEASE_MS) as replicas:
        await send(replicas.broker("a"), b"1")
        await replicas.follows("b")
        slave.open.clear()
        assert (await send(replicas.broker("a"), b"lost", b"lost")).code == Code.SUCCESS
        _, begin = await read_on(replicas.broker("a"), 0)
        replicas.part("a")
        await until(lambda: replicas.is_master("b"), 30)
        assert (await send(replicas.broker("b"), b"2", b"3", b"4")).code == Code.SUCCESS
        assert (await read_on(replicas.broker("b"), begin))[0] == [b"2", b"3", b"4"]


NEW = TopicConfig(topic="new", read_queue_nums=1, write_queue_nums=1, perm=6)


async def test_a_slave_takes_no_table_that_speaks_of_more_than_its_log_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    slave, at = SlowSlave(monkeypatch), Position("g", "T", 0)
    monkeypatch.setattr(metadata, "LOG_WAIT_S", 0.05)
    async with a_set(tmp_path, ha_housekeeping_interval_ms=60_000) as replicas:
        master, copy = replicas.broker("a"), replicas.broker("b")

        def trouble() -> str:
            return copy.replication_info()["tablesTrouble"]

        await send(master, b"1")
        await replicas.follows("b")
        slave.open.clear()
        await send(master, b"2")
        await until(lambda: "the master's log is not all here yet" in trouble())
        master.domain.tables.offsets.commit(at, 1, by="sync")
        before = trouble()
        await send(master, b"3")
        await until(lambda: trouble() != before)  # it has asked again
        assert copy.domain.tables.offsets.get(at) is None
        slave.open.set()
        await until(lambda: copy.domain.tables.offsets.get(at) == 1)


CHANGES: list[tuple[str, Any]] = [
    ("CreateTopic", admin_pb2.CreateTopicRequest(topic=NEW)),
    ("UpdateTopic", admin_pb2.UpdateTopicRequest(topic="T", perm=4)),
    ("UpdateGroup", admin_pb2.UpdateGroupRequest(group=admin_pb2.GroupConfig(group="g"))),
    ("ResetOffsets", admin_pb2.ResetOffsetsRequest(group="g", topic="T", target=admin_pb2.RESET_TO_BEGIN)),
    ("Forbid", admin_pb2.ForbidRequest(group="g", topic="T", forbidden=True)),
    ("DeleteGroup", admin_pb2.DeleteGroupRequest(group="g")),
    ("DeleteTopic", admin_pb2.DeleteTopicRequest(topic="T")),
]


async def test_no_change_is_called_done_when_the_lease_is_over_after_it(tmp_path: Path) -> None:
    """A slave may have taken the place meanwhile, and it copied the tables before."""
    async with a_set(tmp_path) as replicas:
        await replicas.leave("b")
        await send(replicas.broker("a"), b"1")
        replicas.broker("a").domain.tables.groups.update("g")
        replicas.part("a")
        await until(lambda: not replicas.masters(), 30)
        async with Wire(dialled(replicas.broker("a"))) as wire:
            admin: Any = AdminStub(wire.channel)
            for name, request in CHANGES:
                with pytest.raises(DejamqError, match="lease as master is over") as raised:
                    await wire.call(getattr(admin, name), request)
                assert not raised.value.definite, name


async def test_a_slave_waits_while_one_of_two_name_servers_hears_of_the_master(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        replicas.part("a", 0)
        asked = replicas.replicas["b"].mastership

        def one_would() -> bool:
            return any(each.done and each.silent_ms > 2 * LEASE_MS for each in asked.answers)

        await until(one_would, 30)
        assert replicas.masters() == ["a"]
        assert (await send(replicas.broker("a"), b"1")).code == Code.SUCCESS


async def test_a_master_without_name_servers_acknowledges_nothing_more_before_the_slave_does(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        replicas.part("a")
        old, codes = replicas.broker("a"), list[int]()
        async with Wire(dialled(old)) as wire:
            while not replicas.is_master("b"):
                taken = replicas.broker_now("b") is None or replicas.is_master("b")
                code = (await wire.send(a_run("T", [b"%d" % len(codes)]))).code
                assert not (taken and code == Code.SUCCESS), "the slave had taken over before this was sent"
                codes.append(code)
            assert set(codes) <= {Code.SUCCESS, Code.SLAVE_NOT_AVAILABLE, Code.SERVICE_NOT_AVAILABLE}
            assert codes[-1] == (await wire.send(a_run("T", [b"late"]))).code == Code.SERVICE_NOT_AVAILABLE
        assert (await send(replicas.broker("b"), b"after")).code == Code.SUCCESS
        replicas.join("a")
        await until(lambda: (now := replicas.broker_now("a")) is not None and now.site.broker_id == 1, 30)
        await replicas.follows("a")
        assert bodies(replicas, "a") == bodies(replicas, "b")
        told = {b"%d" % number for number, code in enumerate(codes) if code == Code.SUCCESS}
        assert told | {b"after"} <= set(bodies(replicas, "b")), "its slave followed it to the end"
    changes = [event["change"] for event in replica_events(tmp_path / "journal")]
    assert {"lease_lost", "took_over", "stepped_down"} <= set(changes)


async def test_a_slave_whose_disk_fails_for_a_moment_takes_over_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    async with a_set(tmp_path) as replicas:
        fails, write = [False, True], RoleFile.write

        async def write_or_not(file: RoleFile, role: Role) -> None:
            if fails and fails.pop(0):
                raise DejamqError("the disk is full for a moment", code=Code.SERVICE_NOT_AVAILABLE)
            await write(file, role)

        monkeypatch.setattr(RoleFile, "write", write_or_not)
        await replicas.leave("a")
        await until(lambda: replicas.is_master("b"), 30)
        assert not fails, "it failed when the slave had its epoch already"


async def test_name_servers_that_restart_still_know_the_later_master(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        await replicas.leave("a")
        await until(lambda: replicas.is_master("b"), 30)
        for number in (0, 1):
            await replicas.restart_namesrv(number)
        await replicas.start("a")
        assert replicas.broker("a").site.broker_id == 1
        await until(lambda: replicas.masters() == ["b"], 30)
        await replicas.follows("a")


async def test_a_master_that_restarts_within_its_lease_stays_master(tmp_path: Path) -> None:
    async with a_set(tmp_path, failover_lease_ms=60_000) as replicas:
        await replicas.leave("a")
        await replicas.start("a")
        assert replicas.masters() == ["a"]
        assert replicas.replicas["a"].mastership.role.epoch == 1


async def test_a_slave_that_lost_its_master_long_before_takes_no_place(tmp_path: Path) -> None:
    """Its log is too old: what the master has taken since would be lost."""
    async with a_set(tmp_path) as replicas:
        await replicas.leave("b")
        assert (await send(replicas.broker("a"), b"1")).code == Code.SUCCESS
        await replicas.leave("a")
        slave = await replicas.start("b")
        await until(lambda: slave.broker is not None and slave.broker.following() is not None)
        assert not await slave.may_take_over()
        await replicas.start("a")
        await replicas.follows("b")
        assert bodies(replicas, "b") == [b"1"]


async def test_a_slave_that_was_still_catching_up_takes_no_place(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        state = replicas.broker("b").following()
        assert state is not None
        assert state.caught_up
        state.caught_up = False  # as after a connection whose first bytes are still under way
        replicas.part("b")
        await replicas.leave("a")
        assert not await replicas.replicas["b"].may_take_over()


async def test_a_new_store_is_no_master_beside_a_later_one(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        stranger = broker_config(
            tmp_path / "stranger", failover_enable=True, namesrv=replicas.namesrvs[0].address, failover_lease_ms=500
        )
        with pytest.raises(ConfigError, match="give this broker an id above 0"):
            await FailoverBroker(stranger).start()
        assert replicas.masters() == ["a"]


async def test_a_copy_of_a_masters_store_is_no_master_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    async with a_set(tmp_path) as replicas:
        shutil.copytree(tmp_path / "a" / "config", tmp_path / "copy" / "config")
        copy = FailoverBroker(broker_config(
            tmp_path / "copy", failover_enable=True, namesrv=";".join(one.address for one in replicas.namesrvs),
            failover_lease_ms=LEASE_MS,
        ))  # fmt: skip
        starting = asyncio.create_task(copy.start())
        try:
            await until(lambda: "if this store is a copy, remove config/mastership.json" in caplog.text, 30)
            assert copy.broker is None
            assert replicas.masters() == ["a"]
        finally:
            starting.cancel()
            await asyncio.wait((starting,))


async def test_a_second_process_of_a_store_is_refused_and_takes_nothing_from_the_first(tmp_path: Path) -> None:
    async with a_set(tmp_path) as replicas:
        first = replicas.replicas["a"]
        before = (tmp_path / "a" / "config" / "mastership.json").read_bytes()
        with pytest.raises(StoreLocked, match="stop it, or use another directory"):
            await FailoverBroker(first.config).start()
        assert (tmp_path / "a" / "config" / "mastership.json").read_bytes() == before
        assert await first.mastership.renew()


async def test_without_the_setting_a_slave_stays_a_slave(tmp_path: Path) -> None:
    assert BrokerConfig().failover_enable is False
    server = NameServer(NamesrvConfig(listen="127.0.0.1:0", directory=str(tmp_path / "namesrv")))
    site = {"namesrv": await server.start(), "register_name_server_period_ms": 200} | QUICK
    async with running(tmp_path / "slave", broker_id=1, **site) as slave:
        async with running(tmp_path / "master", **site) as master:
            await until(lambda: slave.replication_info()["following"] == "true")
            assert (await send(master, b"1")).code == Code.SUCCESS
        await until(lambda: slave.replication_info()["following"] == "false")
        assert (await send(slave, b"2")).code == Code.SERVICE_NOT_AVAILABLE
        assert "masterEpoch" not in slave.replication_info()
    await server.close()
    assert not (tmp_path / "namesrv" / FILE_NAME).exists()


@pytest.mark.parametrize(("settings", "what"), [
    ({"namesrv": ""}, "name servers decide"),
    ({"namesrv": "127.0.0.1:1", "broker_id": 1, "broker_role": SLAVE}, "what this broker is as master"),
    ({"namesrv": "127.0.0.1:1", "broker_id": 1, "ha_master_address": "127.0.0.1:2"}, "leave ha_master_address empty"),
])  # fmt: skip
def test_settings_that_cannot_fail_over_are_refused(
    tmp_path: Path, settings: dict[str, object], what: str
) -> None:  # fmt: skip
    with pytest.raises(ConfigError, match=what):
        FailoverBroker(broker_config(tmp_path, failover_enable=True, **settings))


async def test_with_double_write_nothing_acknowledged_is_lost_over_some_lives(tmp_path: Path, seed: int) -> None:
    """Each life: the master is left or parted at a random moment, and comes back behind the one that took its place."""
    dice, answered = random.Random(seed), list[bytes]()
    async with a_set(tmp_path, broker_role=SYNC_MASTER) as replicas:
        for life in range(3):
            (name,) = replicas.masters()
            other = "b" if name == "a" else "a"
            parted = bool(life % 2)
            sending = replicas.sending(name, life, answered)
            await until(lambda: len(answered) >= (life + 1) * dice.randint(3, 20))  # noqa: B023  # awaited here
            await (replicas.parted(name) if parted else replicas.leave(name))
            await until(lambda: replicas.is_master(other), 30)  # noqa: B023
            sending.cancel()
            await (replicas.joined(name) if parted else replicas.start(name))
            await until(lambda: replicas.masters() == [other], 30)  # noqa: B023
            await replicas.follows(name)
            here = set(bodies(replicas, other))
            assert not (lost := [body for body in answered if body not in here]), lost
            assert bodies(replicas, name) == bodies(replicas, other)


async def test_a_role_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "mastership.json").write_text(json.dumps({"replica": 7}))
    config = broker_config(tmp_path, failover_enable=True, namesrv="127.0.0.1:1", broker_role=ASYNC_MASTER)
    with pytest.raises(DejamqError, match="is no role of a replica"):
        await FailoverBroker(config).start()
