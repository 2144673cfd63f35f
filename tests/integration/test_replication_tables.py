"""A slave has its master's topics, groups, offsets and delay progress, a moment later, also in its own files."""

import json
from pathlib import Path
from typing import Any

from broker_wire import Wire, running, until
from dejamq_broker.app import Broker
from dejamq_broker.store import read_note
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.tables.offsets import Position
from ha_pair import QUICK, a_link, a_master, a_slave, following, same, send
from journalled import journalled

SOON: dict[str, Any] = {"slave_sync_interval_ms": 50, "flush_consumer_offset_interval_ms": 50}
AT = Position("readers", "T", 0)


def offset(broker: Broker, at: Position = AT) -> int | None:
    return broker.domain.tables.offsets.get(at)


def events(journal: Path, name: str) -> list[dict[str, Any]]:
    return journalled(journal, name, of="broker-*")


async def test_a_slave_has_its_masters_topics_groups_offsets_and_progress(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path) as master,
        a_slave(tmp_path, master.address, **SOON, journal_dir=str(tmp_path / "j")) as slave,
    ):
        mine, theirs = master.domain.tables, slave.domain.tables
        mine.topics.ensure("T", 3)
        mine.groups.update("readers", retry_max_times=5)
        mine.groups.forbid("readers", "T", forbidden=True)
        mine.offsets.commit(AT, 17, by="sync")
        mine.progress.set(3, 9)
        await until(lambda: offset(slave) == 17 and theirs.progress.get(3) == 9)
        assert theirs.topics.content() == mine.topics.content()
        assert theirs.groups.content() == mine.groups.content()
        assert theirs.groups.reading_forbidden("readers", "T")
        file = Path(slave.config.store_directory) / "config" / "consumerOffset.json"
        await until(lambda: file.exists() and json.loads(file.read_text())["offsetTable"] == {"T@readers": {"0": 17}})
    (line,) = events(tmp_path / "j", "OFF_SET")
    assert (line["by"], line["new"], line["topic"]) == ("slave-sync", 17, "T")


async def test_what_the_master_deletes_is_gone_at_its_slave_with_its_offsets(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address, **SOON) as slave:
        for topic in ("T", "U"):
            master.domain.tables.topics.ensure(topic, 1)
            master.domain.tables.groups.require("readers")
            master.domain.tables.offsets.commit(Position("readers", topic, 0), 5, by="sync")
        await until(lambda: offset(slave) == 5)
        master.domain.tables.topics.delete("T")
        master.domain.tables.offsets.forget(topic="T")
        await until(lambda: slave.domain.tables.topics.get("T") is None and offset(slave) is None)
        assert offset(slave, Position("readers", "U", 0)) == 5


async def test_the_masters_offsets_win_over_higher_ones_of_its_slave(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path) as master,
        a_slave(tmp_path, master.address, **SOON, journal_dir=str(tmp_path / "j")) as slave,
    ):
        master.domain.tables.offsets.commit(AT, 3, by="sync")
        await until(lambda: offset(slave) == 3)
        slave.domain.tables.offsets.commit(AT, 8, by="sync")
        slave.domain.tables.offsets.commit(Position("others", "T", 0), 8, by="sync")
        await until(lambda: offset(slave) == 3)
        assert offset(slave, Position("others", "T", 0)) == 8  # of a group that the master does not know
    lowered = [line for line in events(tmp_path / "j", "OFF_SET") if int(line["old"]) == 8]
    assert [(line["by"], int(line["new"])) for line in lowered] == [("slave-sync", 3)]


async def test_a_slave_that_is_cut_off_keeps_what_it_has_and_copies_again_afterwards(tmp_path: Path) -> None:
    async with (
        a_master(tmp_path) as master,
        a_link(master.address) as link,
        a_slave(tmp_path, link.address, **SOON) as slave,
    ):
        master.domain.tables.offsets.commit(AT, 3, by="sync")
        await until(lambda: offset(slave) == 3)
        link.cut()
        await until(lambda: slave.replication_info()["following"] == "false")
        master.domain.tables.offsets.commit(AT, 4, by="sync")
        slave.domain.tables.offsets.commit(AT, 7, by="sync")
        link.heal()
        await until(lambda: offset(slave) == 4)


async def test_a_slave_notes_how_near_to_its_master_it_is(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master:
        async with a_slave(tmp_path, master.address, **SOON) as slave, Wire(master.address) as wire:
            await following(slave)
            await send(wire, 5)
            await same(master, slave)
            await until(lambda: slave.replication_info()["tablesCopiedMsAgo"])
            end = master.domain.store.log_max
            paths = StorePaths(slave.config.store_directory)
        note = read_note(paths)
        assert note is not None
        assert (note.master_end, note.log_end, note.master_address) == (end, end, master.address)
        assert note.missing_bytes(note.log_end) == 0
        assert 0 <= note.stale_ms < 60_000


async def test_a_promoted_slave_goes_on_with_the_copied_tables(tmp_path: Path) -> None:
    async with a_master(tmp_path) as master, a_slave(tmp_path, master.address, **SOON) as slave:
        master.domain.tables.topics.ensure("T", 2)
        master.domain.tables.offsets.commit(AT, 3, by="sync")
        master.domain.tables.progress.set(3, 9)
        await until(lambda: offset(slave) == 3)
    async with running(tmp_path / "slave", **QUICK) as promoted:
        assert promoted.site.master
        assert offset(promoted) == 3
        assert promoted.domain.tables.topics.get("T") is not None
