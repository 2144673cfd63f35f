"""SYNC_MASTER: a producer is answered when a slave has its message, or told that none has; stored it is in any case."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_wire import SMALL, Wire, records_of, until
from dejamq_broker.app import Broker
from dejamq_broker.base.config import SYNC_MASTER
from dejamq_broker.doors.v1.replication import MasterLink
from dejamq_broker.store import SYNC_FLUSH
from dejamq_broker.store.log import sync
from dejamq_lab.cluster.relay import UP
from dejamq_proto.codes import Code, DejamqError
from dejamq_proto.wire.messages import SendRunResult
from ha_pair import a_link, a_master, a_pair, a_slave, following, same, send, told

SYNC: dict[str, Any] = {"broker_role": SYNC_MASTER, "slave_timeout_ms": 10_000}
IMPATIENT = SYNC | {"slave_timeout_ms": 300}
SYNC_STORE = replace(SMALL, flush_disk_type=SYNC_FLUSH)


async def stored(master: Broker, wire: Wire, result: SendRunResult) -> None:
    """The answer names the place, and the message is consumable there."""
    record, *_ = records_of(await wire.pull("T", int(result.queue_offsets[0])))
    assert record.log_offset == int(result.span_log_offsets[0]) < master.domain.store.log_max


async def test_a_message_that_is_answered_is_in_the_slaves_log(tmp_path: Path) -> None:
    async with a_pair(tmp_path, **SYNC) as (master, slave), Wire(master.address) as wire:
        for _ in range(50):
            result = await send(wire, 10)
            assert result.code == Code.SUCCESS
            assert slave.domain.store.log_max == master.domain.store.log_max
        await same(master, slave)


async def test_without_a_slave_the_answer_is_that_there_is_none_and_the_message_is_stored(tmp_path: Path) -> None:
    async with a_master(tmp_path, **SYNC) as master, Wire(master.address) as wire:
        result = await send(wire)
        assert result.code == Code.SLAVE_NOT_AVAILABLE
        assert "slaves" in result.remark
        await stored(master, wire, result)


async def test_a_slave_that_does_not_confirm_in_time_is_told_and_the_message_is_stored(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path, **IMPATIENT, ha_housekeeping_interval_ms=60_000) as master,
        a_link(master.address) as link,
        a_slave(tmp_path, link.address) as slave,
        Wire(master.address) as wire,
    ):
        await following(slave)
        link.lose(UP)
        results = await asyncio.gather(*(send(wire) for _ in range(5)))
        assert [result.code for result in results] == [Code.FLUSH_SLAVE_TIMEOUT] * 5
        await stored(master, wire, results[-1])
        link.heal()
        await same(master, slave)


async def test_a_slave_that_is_too_far_behind_is_not_waited_for(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path, **IMPATIENT, ha_max_gap_not_in_sync=10_000) as master,
        a_link(master.address) as link,
        a_slave(tmp_path, link.address) as slave,
        Wire(master.address) as wire,
    ):
        await following(slave)
        link.delay(60_000)
        codes = [Code((await send(wire, size=5000)).code) for _ in range(4)]
        assert codes == [Code.FLUSH_SLAVE_TIMEOUT, Code.SLAVE_NOT_AVAILABLE] + [Code.SLAVE_NOT_AVAILABLE] * 2
        link.heal()


async def test_a_run_that_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    async with a_master(tmp_path, **SYNC) as master, Wire(master.address) as wire:
        assert (await send(wire, no_wait_store=True)).code == Code.SUCCESS


async def test_with_one_replica_in_sync_nobody_waits_as_in_rocketmq_5(tmp_path: Path) -> None:
    async with a_master(tmp_path, **SYNC, in_sync_replicas=1) as master, Wire(master.address) as wire:
        assert (await send(wire)).code == Code.SUCCESS


async def test_two_slaves_are_waited_for_when_three_replicas_are_to_be_in_sync(tmp_path: Path) -> None:
    async with a_pair(tmp_path, **SYNC, in_sync_replicas=3) as (master, slave), Wire(master.address) as wire:
        assert (await send(wire)).code == Code.SLAVE_NOT_AVAILABLE
        async with a_slave(tmp_path / "second", master.address, broker_id=2) as second:
            await following(second)

            async def stored() -> bool:  # the master hears of a slave's place a moment after the slave
                return (await send(wire)).code == Code.SUCCESS

            await until(stored)
            assert master.domain.store.log_max == slave.domain.store.log_max == second.domain.store.log_max


@pytest.fixture
def held_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the event is clear, nothing gets to disk; it is known as slow, for the test shares the broker's loop."""
    monkeypatch.setattr(sync, "WAKING_S", 3600)
    free, real = threading.Event(), os.fdatasync
    free.set()

    def fdatasync(descriptor: int) -> None:
        free.wait(30)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    yield free
    free.set()


async def test_of_two_failures_the_slaves_is_told(tmp_path: Path, held_disk: threading.Event) -> None:
    async with (
        a_master(tmp_path, **SYNC, store=SYNC_STORE, sync_flush_timeout_ms=100) as master,
        Wire(master.address) as wire,
    ):
        held_disk.clear()
        assert (await send(wire)).code == Code.SLAVE_NOT_AVAILABLE
        held_disk.set()
        async with a_slave(tmp_path, master.address) as slave:
            await following(slave)
            held_disk.clear()
            assert (await send(wire)).code == Code.FLUSH_DISK_TIMEOUT
            held_disk.set()
            await same(master, slave)


async def test_a_slave_with_sync_flush_confirms_what_is_on_its_disk(tmp_path: Path, held_disk: threading.Event) -> None:
    async with (
        a_master(tmp_path, **SYNC) as master,
        a_slave(tmp_path, master.address, store=SYNC_STORE) as slave,
        Wire(master.address) as wire,
    ):
        await following(slave)
        assert (await send(wire)).code == Code.SUCCESS
        assert slave.domain.store.flushed == master.domain.store.log_max
        held_disk.clear()
        answer = asyncio.create_task(send(wire))
        await until(lambda: slave.domain.store.log_max == master.domain.store.log_max > slave.domain.store.flushed)
        assert int(told(master)["slave.1.lagBytes"]) > 0
        assert not answer.done()
        held_disk.set()
        assert (await answer).code == Code.SUCCESS
        await same(master, slave)


async def test_a_message_given_back_is_refused_while_no_slave_has_its_next_try(tmp_path: Path) -> None:
    async with a_master(tmp_path, **SYNC) as master, Wire(master.address) as wire:
        result = await send(wire)
        await stored(master, wire, result)
        with pytest.raises(DejamqError, match="the next try is stored") as refused:
            await wire.send_back("readers", int(result.span_log_offsets[0]))
        assert refused.value.code == Code.SYSTEM_ERROR


async def test_a_master_that_closes_gives_its_slaves_what_it_has(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address) as slave:
        await following(slave)
        async with Wire(master.address) as wire:
            for _ in range(20):
                await send(wire, 100, size=2000)
            end = master.domain.store.log_max
        await master.close()
        assert slave.domain.store.log_max == end
        assert told(slave)["followingTrouble"] or told(slave)["following"] == "true"


async def test_a_master_that_closes_waits_until_its_slave_has_said_what_it_got(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer to a stream that has ended breaks it, and the slave would lose the slices that it had not read."""
    report = MasterLink.report

    async def slowly(link: MasterLink, log_offset: int) -> None:
        await asyncio.sleep(0.2)
        await report(link, log_offset)

    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address) as slave:
        await following(slave)
        monkeypatch.setattr(MasterLink, "report", slowly)
        async with Wire(master.address) as wire:
            for _ in range(3):
                await send(wire, 10)
            end = master.domain.store.log_max
        await master.close()
        assert slave.domain.store.log_max == end
