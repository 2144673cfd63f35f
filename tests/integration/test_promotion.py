"""A slave is made the master by hand: what is told before, what is journalled, and how the old master comes back."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_wire import Wire, a_run, dialled, running, until
from dejamq_broker.store import SlaveNote
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline import promotion
from dejamq_broker.store.replica.note import read_note
from dejamq_proto import pop_pb2 as pb
from dejamq_proto.pop_pb2_grpc import PopStub
from ha_pair import QUICK, a_link, a_master, a_slave, following, replica_events, same, send

POPPED: dict[str, Any] = {"group": "g", "topic": "T", "invisible_ms": 600_000, "from_min": True}
SOON: dict[str, Any] = {"slave_sync_interval_ms": 50}


async def a_stopped_slave(directory: Path) -> StorePaths:
    """That has everything of its master."""
    async with (
        a_master(directory) as master,
        a_slave(directory, master.address, **SOON) as slave,
        Wire(master.address) as wire,
    ):
        await following(slave)
        await send(wire, 5)
        await same(master, slave)
        await until(lambda: slave.replication_info()["tablesCopiedMsAgo"])
    return StorePaths(directory / "slave")


def rewrite(paths: StorePaths, **changes: Any) -> None:
    note = read_note(paths)
    assert note is not None
    paths.slave_note.write_bytes(msgspec.json.encode(msgspec.structs.replace(note, **changes)))


def checked(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = promotion.main([str(directory), "-o", "json"])
    return status, json.loads(capsys.readouterr().out)


async def test_a_slave_that_has_everything_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = await a_stopped_slave(tmp_path)
    status, told = checked(paths.root, capsys)
    assert (status, told["verdict"], told["missing_bytes"]) == (0, "complete", 0)
    assert told["log_end"] == told["master_end"] > 0
    assert 0 <= told["tables_older_ms"] < 60_000


async def test_what_the_master_had_beyond_is_told_in_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = await a_stopped_slave(tmp_path)
    note = read_note(paths)
    assert note is not None
    rewrite(paths, master_end=note.master_end + 700)
    status, told = checked(paths.root, capsys)
    assert (status, told["verdict"], told["missing_bytes"]) == (1, "loses", 700)
    assert promotion.main([str(paths.root)]) == 1
    said = capsys.readouterr().out
    assert "700 bytes missing" in said
    assert "is not known here" in said


async def test_tables_that_were_never_copied_are_a_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = await a_stopped_slave(tmp_path)
    rewrite(paths, copied_ms=0)
    assert promotion.main([str(paths.root)]) == 1
    assert "never copied" in capsys.readouterr().out


async def test_only_a_slaves_store_can_be_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = await a_stopped_slave(tmp_path)
    assert promotion.main([str(tmp_path / "master")]) == 3
    assert "is no slave's store" in capsys.readouterr().err
    assert promotion.main([str(tmp_path)]) == 2
    paths.slave_note.unlink()
    assert promotion.main([str(paths.root)]) == 3
    assert "never followed" in capsys.readouterr().err


async def test_a_promotion_is_journalled_with_what_is_known_to_be_missing(tmp_path: Path) -> None:
    paths = await a_stopped_slave(tmp_path)
    note = read_note(paths)
    assert note is not None
    rewrite(paths, master_end=note.master_end + 700)
    async with running(paths.root, journal_dir=str(tmp_path / "j"), **QUICK) as promoted:
        end = promoted.domain.store.log_max
    (event,) = replica_events(tmp_path / "j")
    assert (event["change"], int(event["log_offset"]), int(event["lag_bytes"])) == ("promoted", end, 700)


async def test_the_old_master_follows_the_new_one_and_gives_up_what_that_has_not(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master, a_link(master.address) as link, Wire(master.address) as wire:
        async with a_slave(tmp_path, link.address) as slave:
            await following(slave)
            await send(wire, 20)
            await same(master, slave)
            link.cut()
            await send(wire, 10)  # acknowledged, and on no slave
        common, end = slave.domain.store.log_max, master.domain.store.log_max
    async with running(tmp_path / "slave", **QUICK) as promoted, Wire(promoted.address) as wire:
        await send(wire, 15, queue_id=1)
        settings = {"ha_master_address": promoted.address, "journal_dir": str(tmp_path / "j")} | QUICK
        async with running(tmp_path / "master", broker_id=1, **settings) as old:
            await following(old)
            await same(promoted, old)
    (cut,) = [event for event in replica_events(tmp_path / "j") if event["change"] == "cut"]
    assert (int(cut["log_offset"]), int(cut["size"])) == (common, end - common)
    assert sum((tmp_path / "master" / kept).stat().st_size for kept in cut["kept"]) >= end - common


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    assert read_note(paths) is None
    paths.slave_note.write_text("{")
    assert read_note(paths) is None
    note = SlaveNote(master_address="a:1", master_end=7, heard_ms=9, log_end=5)
    paths.slave_note.write_bytes(msgspec.json.encode(note))
    assert read_note(paths) == note
    assert (note.missing_bytes(5), note.missing_bytes(9), note.stale_ms) == (2, 0, -1)


async def test_what_is_popped_at_a_master_is_in_flight_at_the_slave_that_takes_its_place(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path) as master,
        a_slave(tmp_path, master.address, **SOON) as slave,
        Wire(dialled(master)) as wire,
    ):
        await following(slave)
        await send(wire, 5)
        done, kept, changed, back = await popped(wire, 4)
        await acknowledge(wire, done)
        changed = await change(wire, changed, 900_000)
        await change(wire, back, 0)
        await until(lambda: master.domain.store.max_offset("%RETRY%g_T", 0) == 1)
        await same(master, slave)
        await until(lambda: slave.domain.tables.topics.get("%RETRY%g_T"))
        await until(lambda: slave.domain.tables.groups.get("g"))
    async with running(tmp_path / "slave", **QUICK) as promoted, Wire(dialled(promoted)) as wire:
        again = [*await popped(wire, 32), *await popped(wire, 32)]
        kinds = sorted(handle.split(" ")[4] for handle in again)
        assert kinds == ["0", "1"], "one that nobody had, and the copy of the one that was given back"
        await acknowledge(wire, kept, changed, *again)
        assert await popped(wire, 32) == []
        assert promoted.domain.store.max_offset("%RETRY%g_T", 0) == 1


async def test_a_slave_that_becomes_master_knows_the_ids_of_its_log(tmp_path: Path) -> None:
    run = a_run("T", [b"x"], properties={"DEDUP_ID": "17"}, dedup=True)
    async with (
        a_master(tmp_path) as master,
        a_slave(tmp_path, master.address, **SOON) as slave,
        Wire(dialled(master)) as wire,
    ):
        await following(slave)
        first = await wire.send(run)
        await same(master, slave)
        await until(lambda: slave.domain.tables.topics.get("T"))
    async with running(tmp_path / "slave", **QUICK) as promoted, Wire(dialled(promoted)) as wire:
        again = await wire.send(run)
    assert (again.code, again.duplicates.tolist()) == (0, [0])
    assert again.span_log_offsets.tolist() == first.span_log_offsets.tolist()


async def popped(wire: Wire, count: int) -> list[str]:
    """Handles of messages that nobody has."""
    asked = pb.ReceiveRequest(caller=wire.caller(), max_messages=count, **POPPED)
    batches = (await wire.call(PopStub(wire.channel).Receive, asked)).batches
    return [handle for batch in batches for handle in batch.handles]


async def acknowledge(wire: Wire, *handles: str) -> None:
    asked = pb.AckRequest(caller=wire.caller(), group="g", topic="T", handles=handles)
    assert list((await wire.call(PopStub(wire.channel).Ack, asked)).outcomes) == []


async def change(wire: Wire, handle: str, invisible_ms: int) -> str:
    asked = pb.ChangeInvisibleRequest(
        caller=wire.caller(), group="g", topic="T", handle=handle, invisible_ms=invisible_ms
    )
    return str((await wire.call(PopStub(wire.channel).ChangeInvisible, asked)).handle)
