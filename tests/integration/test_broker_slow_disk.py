"""SYNC_FLUSH on a disk that takes its time: who waits is told, and what was stored stays."""

import asyncio
import dataclasses
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_wire import Wire, a_run, records_of, running, until
from dejamq_broker.app import Broker
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log import sync as log_sync
from dejamq_proto.codes import Code, DejamqError

SYNC = StoreConfig(mapped_file_size_commit_log=1 << 20, flush_disk_type="SYNC_FLUSH")


class SlowDisk:
    """``fdatasync`` does not return while the disk is held."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()
        self._real = os.fdatasync
        self.waiting = False

    def fdatasync(self, descriptor: int) -> None:
        self.waiting = not self._free.is_set()
        self._free.wait(30)
        self._real(descriptor)

    @contextmanager
    def held(self) -> Iterator[None]:
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    monkeypatch.setattr(log_sync, "WAKING_S", 3600)  # known as slow: the test shares the broker's loop
    disk = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", disk.fdatasync)
    return disk


async def bodies_in(broker: Broker, wire: Wire, count: int) -> list[bytes]:
    """What is pulled once the queue has so many."""
    assert broker.domain.store is not None
    store = broker.domain.store
    await until(lambda: store.max_offset("orders", 0) == count)
    return [record.body for record in records_of(await wire.pull("orders"))]


async def test_a_late_disk_answers_flush_disk_timeout_and_the_message_is_consumed_all_the_same(
    tmp_path: Path, disk: SlowDisk
) -> None:
    async with running(tmp_path, store=SYNC, sync_flush_timeout_ms=200) as broker, Wire(broker.address) as wire:
        with disk.held():
            late = await wire.send(a_run("orders", [b"late"]))
            assert (late.code, late.queue_offsets.tolist()) == (Code.FLUSH_DISK_TIMEOUT, [0])
            assert late.remark == "stored, but the disk did not confirm it within 0.2 s"
            assert await bodies_in(broker, wire, 0) == []
        assert await bodies_in(broker, wire, 1) == [b"late"]

        async def in_time() -> bool:
            return (await wire.send(a_run("orders", [b"in time"]))).code == Code.SUCCESS

        await until(in_time)  # the disk of a busy machine may be late itself


async def test_a_delayed_message_whose_delivery_the_disk_confirms_late_is_delivered_once(
    tmp_path: Path, disk: SlowDisk
) -> None:
    store = dataclasses.replace(SYNC, delay_second_ms=20)
    async with running(tmp_path, store=store, sync_flush_timeout_ms=100) as broker, Wire(broker.address) as wire:
        progress = broker.domain.tables.progress
        await wire.send(a_run("orders", [b"x"], properties={"DELAY": "4"}, rewrite=True))  # 0.6 s
        with disk.held():
            await until(lambda: progress.get(4) == 1)
            await asyncio.sleep(0.5)  # any confirmation would be late by now, several times
        assert await bodies_in(broker, wire, 1) == [b"x"]
        assert broker.domain.store.max_offset("orders", 0) == 1


async def test_who_does_not_wait_for_the_store_is_answered_while_the_disk_is_still_at_it(
    tmp_path: Path, disk: SlowDisk
) -> None:
    async with running(tmp_path, store=SYNC) as broker, Wire(broker.address) as wire:
        with disk.held():
            answer = await wire.send(a_run("orders", [b"x"], no_wait_store=True))
            assert answer.code == Code.SUCCESS
            assert await bodies_in(broker, wire, 0) == []
        assert await bodies_in(broker, wire, 1) == [b"x"]


async def test_with_async_flush_a_message_is_consumed_before_it_is_on_disk(tmp_path: Path, disk: SlowDisk) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        with disk.held():
            assert (await wire.send(a_run("orders", [b"x"]))).code == Code.SUCCESS
            assert await bodies_in(broker, wire, 1) == [b"x"]


async def test_a_message_given_back_is_answered_when_its_next_try_is_on_disk(tmp_path: Path, disk: SlowDisk) -> None:
    async with running(tmp_path, store=SYNC, sync_flush_timeout_ms=200) as broker, Wire(broker.address) as wire:
        sent = await wire.send(a_run("orders", [b"x"]))
        await wire.heartbeat_stream("g")
        log_offset = int(sent.span_log_offsets[0])
        with disk.held(), pytest.raises(DejamqError, match="next try is stored, but the disk") as refused:
            await wire.send_back("g", log_offset)
        assert refused.value.code == Code.SYSTEM_ERROR

        async def in_time() -> bool:
            try:
                await wire.send_back("g", log_offset)
            except DejamqError:  # the disk of a busy machine may be late itself
                return False
            return True

        await until(in_time)
        assert broker.domain.store is not None
        assert broker.domain.store.flushed == broker.domain.store.log_max


@pytest.mark.parametrize("table", ["consumerOffset.json", "delayOffset.json"])
async def test_offsets_are_not_on_disk_before_their_messages(tmp_path: Path, disk: SlowDisk, table: str) -> None:
    async with running(tmp_path) as broker, Wire(broker.address) as wire:
        path = tmp_path / "config" / table
        await wire.heartbeat_stream("g")
        with disk.held():
            await wire.send(a_run("orders", [b"x"]))
            await wire.commit("g", "orders", 1)
            broker.domain.tables.progress.set(3, 1)
            flush = (
                broker.domain.tables.offsets.flush
                if table == "consumerOffset.json"
                else broker.domain.tables.progress.flush
            )
            flushing = asyncio.create_task(flush())
            await until(lambda: disk.waiting)
            assert not path.exists()
            assert not flushing.done()
        await flushing
        assert path.exists()


async def test_on_a_quick_disk_the_loop_syncs_what_it_stored_where_it_was_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    real = MappedFile.sync

    def sync(file: MappedFile) -> None:
        threads.append(threading.get_ident())
        real(file)

    monkeypatch.setattr(log_sync, "WAKING_S", 0)
    monkeypatch.setattr(log_sync, "QUICK_S", 60)  # however long the disk of a busy machine takes
    async with (
        running(tmp_path, store=dataclasses.replace(SYNC, sync_flush_in_event_loop=True)) as broker,
        Wire(broker.address) as wire,
    ):
        assert (await wire.send(a_run("orders", [b"first"]))).code == Code.SUCCESS
        monkeypatch.setattr(MappedFile, "sync", sync)
        assert (await wire.send(a_run("orders", [b"a", b"b"]))).code == Code.SUCCESS
        assert threading.get_ident() in threads
        assert await bodies_in(broker, wire, 3) == [b"first", b"a", b"b"]
