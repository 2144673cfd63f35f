"""Logs that are not one another's continuation: what a slave gives up, what it refuses, and what it keeps."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from broker_wire import SMALL, Wire, a_run, running, until
from dejamq_broker.app import Broker, wall_clock_ms
from dejamq_broker.store import SlaveStore
from dejamq_broker.store.files.mapped_file import MappedFile
from dejamq_broker.store.log.commit_log import CommitLog
from dejamq_lab.cluster.ports import held_ports
from ha_pair import QUICK, a_master, a_pair, a_slave, knows_topic, replica_events, same, send, told


def log_of(directory: Path) -> bytes:
    """The bytes of all log files, without the zeros at the end."""
    files = sorted((directory / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


async def fill(master: Broker, count: int = 20, size: int = 4000) -> None:
    async with Wire(master.address) as wire:
        for number in range(count):
            await send(wire, 10, queue_id=number % 3, size=size)


def lose_tail(directory: Path, part: float) -> int:
    """As if the machine had died before so much of the log was on disk. Answers where the log ends now."""
    store = SlaveStore.open(directory, SMALL, clock_ms=wall_clock_ms)
    place = store.copy.boundary(int(store.log_max * part))
    store.cut_back(place, "test")
    store.close()
    shutil.rmtree(directory / "cut")
    return place


@pytest.mark.parametrize("part", [0.4, 0.97])
@pytest.mark.parametrize("more", [0, 5])
async def test_a_slave_gives_up_what_its_master_lost_and_keeps_a_copy(tmp_path: Path, part: float, more: int) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master, 40)
        await same(master, slave)
    before = log_of(tmp_path / "slave")
    place = lose_tail(tmp_path / "master", part)
    async with a_master(tmp_path) as master:
        if more:
            await fill(master, more, 3000)
        async with a_slave(tmp_path, master.address, journal_dir=str(tmp_path / "j")) as slave:
            await same(master, slave)
            kept = sorted((tmp_path / "slave" / "cut").iterdir())
            assert b"".join(file.read_bytes() for file in kept).replace(b"\0", b"") == before[place:].replace(
                b"\0", b""
            )
            await fill(master, 5)
            await same(master, slave)
    (cut,) = [event for event in replica_events(tmp_path / "j") if event["change"] == "cut"]
    assert (cut["log_offset"], cut["size"], sorted(cut["kept"])) == (place, len(before) - place, [str(f) for f in kept])


async def test_a_slave_that_runs_gives_up_what_its_restarted_master_lost(tmp_path: Path) -> None:
    with held_ports(1) as (port,):
        address = f"127.0.0.1:{port}"
        async with (
            a_master(tmp_path, listen=address) as master,
            a_slave(tmp_path, address, ha_full_copy=True, slave_sync_interval_ms=200) as slave,
            Wire(slave.address) as reader,
        ):
            await fill(master)
            await same(master, slave)
            await knows_topic(master, slave, "T")
            await reader.pull("T")
            await master.close()
            place = lose_tail(tmp_path / "master", 0.5)
            async with a_master(tmp_path, listen=address) as again:
                await fill(again, 3)
                await same(again, slave)
                assert slave.domain.store.recovery.cuts[0].log_offset == place
                assert (await reader.pull("T")).code == 0


async def test_nothing_is_given_up_when_nothing_would_be_left(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master)
        await same(master, slave)
    before = log_of(tmp_path / "slave")
    shutil.rmtree(tmp_path / "master")
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address) as slave:
        await until(lambda: "start this broker as master" in told(slave)["followingTrouble"])
        await fill(master, 1)
        await until(lambda: "nothing in common" in told(slave)["followingTrouble"])
        assert log_of(tmp_path / "slave") == before
        assert told(master)["slaves"] == "0"


async def test_a_master_that_has_deleted_what_a_slave_lacks_is_not_followed_and_it_says_so(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master, 5)
        await same(master, slave)
    async with a_master(tmp_path) as master:
        await fill(master, 60)
        store = master.domain.store
        assert store.log_max > 2 << 20
        store.inspect().retention.safe_end = lambda: store.log_max
        store.clean_soon()
        store.inspect().retention.clean(int(time.time() * 1000) + (80 << 20) * 1000)
        assert store.log_min > 0
        async with a_slave(tmp_path, master.address) as slave:
            end = slave.domain.store.log_max
            await until(lambda: "empty this slave's store directory" in told(slave)["followingTrouble"])
            assert slave.domain.store.log_max == end
    shutil.rmtree(tmp_path / "slave")
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address, ha_full_copy=True) as slave:
        await same(master, slave)
        assert slave.domain.store.log_min == master.domain.store.log_min > 0


async def test_a_slave_with_other_file_sizes_says_which_it_needs(tmp_path: Path) -> None:
    other = replace(SMALL, mapped_file_size_commit_log=1 << 19)
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address, store=other) as slave:
        await until(lambda: "mapped_file_size_commit_log" in told(slave)["followingTrouble"])


async def test_damage_in_the_masters_log_is_copied_as_it_is(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master:
        await fill(master)
    with (tmp_path / "master" / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 5000)
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address, ha_full_copy=True) as slave:
        await fill(master, 2)
        await until(lambda: slave.domain.store.log_max == master.domain.store.log_max)
        assert log_of(tmp_path / "slave") == log_of(tmp_path / "master")


async def test_bytes_that_were_changed_on_the_way_are_asked_for_again(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master:
        await fill(master)
        copy, real = master.domain.store.copy, master.domain.store.copy.recent

        def changed(log_offset: int, most: int) -> bytes:
            copy.recent = real  # type: ignore[method-assign]  # once
            data = bytearray(real(log_offset, most))
            data[50_000] ^= 1
            return bytes(data)

        copy.recent = changed  # type: ignore[method-assign,assignment]
        async with a_slave(tmp_path, master.address) as slave:
            await same(master, slave)


async def test_a_slave_without_room_goes_on_when_there_is_some(tmp_path: Path) -> None:
    real = CommitLog.make_room
    full = True

    def make_room(log: CommitLog, end: int) -> None:
        if full and log.files.folder.parent.name == "slave" and 0 < log.files.end < end:
            raise OSError(28, "No space left on device")
        real(log, end)

    with mock.patch.object(CommitLog, "make_room", make_room):
        async with a_pair(tmp_path) as (master, slave):
            await fill(master, 1)
            await same(master, slave)
            await fill(master, 40)
            await until(lambda: "no room" in told(slave)["followingTrouble"])
            full = False
            await same(master, slave)


async def test_a_cut_for_which_there_was_no_room_is_made_when_there_is(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master)
        await same(master, slave)
    lose_tail(tmp_path / "master", 0.5)
    failures = [OSError(28, "No space left on device")] * 2
    real = MappedFile.clear

    def clear(file: MappedFile, at: int, end: int) -> None:
        if failures:
            raise failures.pop()
        real(file, at, end)

    async with a_master(tmp_path) as master, Wire(master.address) as wire:
        await wire.send(a_run("T", [b"other"]))
        with mock.patch.object(MappedFile, "clear", clear):
            async with a_slave(tmp_path, master.address) as slave:
                await same(master, slave)
    assert failures == []


async def test_a_slave_that_is_started_as_master_goes_on_and_its_old_master_follows_it(tmp_path: Path) -> None:
    async with a_pair(tmp_path) as (master, slave):
        await fill(master)
        await same(master, slave)
        end = slave.domain.store.log_max
        await slave.close()
        await fill(master, 3)  # what the slave never gets
    journal: dict[str, Any] = {"journal_dir": str(tmp_path / "j"), "journal_level": "forensic"}
    async with running(tmp_path / "slave", **QUICK, **journal) as promoted:
        await fill(promoted, 5)
        follow = {"broker_id": 1, "ha_master_address": promoted.address}
        async with running(tmp_path / "master", **QUICK, **journal, **follow) as old:
            await same(promoted, old)
    changes = {event["change"]: event.get("log_offset") for event in replica_events(tmp_path / "j")}
    assert changes["promoted"] == changes["cut"] == end
    async with running(tmp_path / "slave", **QUICK, **journal):
        pass
    assert [event["change"] for event in replica_events(tmp_path / "j")].count("promoted") == 1


async def test_an_error_that_nobody_thought_of_does_not_end_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, real = [ValueError("nobody thought of it")], SlaveStore.take_copy

    def take_copy(store: SlaveStore, log_offset: int, data: bytes) -> None:
        if errors:
            raise errors.pop()
        real(store, log_offset, data)

    monkeypatch.setattr(SlaveStore, "take_copy", take_copy)
    async with a_pair(tmp_path) as (master, slave):
        await fill(master)
        await same(master, slave)
        assert errors == []
