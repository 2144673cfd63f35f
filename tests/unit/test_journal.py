"""The journal file: what is on disk when, in which order, and how holes show."""

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dejamq_proto.journal import beside, events
from dejamq_proto.journal.writer import Journal, Level, journal_name, new_boot_id, open_journal
from journalled import journalled


def lines(journal: Journal) -> list[dict[str, Any]]:
    assert journal.path is not None
    return journalled(journal.path)


def journal_in(path: Path, level: str, max_bytes: int = 1 << 30) -> Journal:
    return open_journal(path, role="consumer", process="c 1", boot_id="b0", level=level, max_bytes=max_bytes)


def test_a_forensic_line_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "forensic")
    journal.write(events.State(state="started"))
    assert [line["state"] for line in lines(journal)] == ["started"]
    journal.close()


async def test_an_audit_line_is_in_the_file_within_the_flush_interval(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "audit")
    journal.write(events.State(state="started"))
    assert lines(journal) == []
    async with asyncio.timeout(20):
        while not lines(journal):
            await asyncio.sleep(0.01)
    journal.close()


def test_closing_writes_what_was_held_back(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "audit")
    journal.write(events.Gap(missing_ms=3))
    journal.close()
    journal.close()
    assert [line["missing_ms"] for line in lines(journal)] == [3]


def test_every_line_carries_the_envelope_and_a_sequence_without_holes(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "forensic")
    for _ in range(3):
        journal.write(events.State(state="x"))
    journal.close()
    assert [line["seq"] for line in lines(journal)] == [1, 2, 3]
    first = lines(journal)[0]
    assert {"v", "event", "role", "process", "boot_id", "wall_us", "mono_us"} <= first.keys()
    assert (first["event"], first["role"], first["process"], first["boot_id"]) == ("STATE", "consumer", "c 1", "b0")


def test_an_event_that_cannot_be_written_leaves_no_half_line(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "audit")
    journal.write(events.State(state="started"))
    with pytest.raises(UnicodeEncodeError):
        journal.write(events.State(state="x" * 1000, reason="\ud800"))
    journal.write(events.State(state="stopped"))
    journal.close()
    assert [(line["state"], line["seq"]) for line in lines(journal)] == [("started", 1), ("stopped", 3)]


def test_off_makes_no_file(tmp_path: Path) -> None:
    journal = journal_in(tmp_path / "none", "off")
    journal.write(events.State(state="x"))
    journal.close()
    assert not journal.on
    assert not (tmp_path / "none").exists()


def test_above_the_limit_the_oldest_lines_go_and_the_sequence_shows_the_gap(tmp_path: Path) -> None:
    journal = journal_in(tmp_path, "forensic", max_bytes=2000)
    for _ in range(60):
        journal.write(events.State(state="x" * 20))
    journal.close()
    files = sorted(tmp_path.iterdir())
    assert sum(path.stat().st_size for path in files) <= 2000
    kept = sorted(json.loads(line)["seq"] for path in files for line in path.read_text().splitlines())
    assert kept == list(range(kept[0], 61))
    assert kept[0] > 1


def test_file_names_use_safe_characters_only() -> None:
    assert journal_name("broker", "broker/a:0@x", "b0") == "broker-broker-a-0-x-b0.jsonl"


def test_boot_ids_differ() -> None:
    assert len({new_boot_id() for _ in range(100)}) == 100


def test_fields_of_one_name_have_one_type_in_all_events() -> None:
    types: dict[str, object] = {}
    for event in events.EVENTS:
        for field in msgspec.structs.fields(event):
            assert types.setdefault(field.name, field.type) == field.type, f"{event.__name__}.{field.name}"


def test_every_event_reads_back_from_its_line() -> None:
    union: Any = events.EVENTS[0]
    for event in events.EVENTS[1:]:
        union = union | event
    line = msgspec.json.encode(events.Gap(missing_ms=5, seq=9))
    assert msgspec.json.decode(line, type=union) == events.Gap(missing_ms=5, seq=9)


@pytest.mark.parametrize("level", ["audit", "forensic"])
def test_levels_are_named(level: str) -> None:
    assert Level(level).value == level


def test_a_full_disk_costs_lines_and_one_log_line_but_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(Path("/dev/full"), role="broker", process="a", boot_id="b0", level=Level.FORENSIC)
    for _ in range(3):
        journal.write(events.State(state="x"))
    journal.close()
    assert [record.message.split()[0] for record in caplog.records] == ["journal_lines_lost"]


class HangingDisk:
    """``os.write`` of journals waits until the test lets it go on, and may not be called where the test runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.calls = threading.Event(), 0
        self._real, self._here = os.write, threading.get_ident()
        monkeypatch.setattr("dejamq_proto.journal.writer.os.write", self._write)

    def _write(self, descriptor: int, data: bytes) -> int:
        if threading.current_thread().name == "dejamq-journal":
            self.calls += 1
            assert self.answers.wait(30)
        else:
            assert threading.get_ident() != self._here, "the event loop would hang"
        return self._real(descriptor, data)


def journal_beside(path: Path) -> Journal:
    return Journal(
        path / "j.jsonl", role="broker", process="b", boot_id="b0", level=Level.AUDIT, max_bytes=1 << 30, beside=True
    )


async def test_a_disk_that_hangs_holds_no_server_that_writes_a_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, journal = HangingDisk(monkeypatch), journal_beside(tmp_path)
    for number in range(2_000):  # more than is held back
        journal.write(events.State(state="x" * 100, reason=str(number)))
    async with asyncio.timeout(10):
        while not disk.calls:
            await asyncio.sleep(0.01)
    journal.write(events.State(state="last"))
    assert lines(journal) == []
    disk.answers.set()
    journal.close()
    assert [line["seq"] for line in lines(journal)] == list(range(1, 2_002))


async def test_a_disk_that_hangs_for_long_costs_lines_and_no_memory_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(beside, "MOST_WAITING", 1 << 20)
    disk, journal = HangingDisk(monkeypatch), journal_beside(tmp_path)
    for number in range(20_000):
        journal.write(events.State(state="x" * 100, reason=str(number)))
    disk.answers.set()
    journal.close()
    seqs = [line["seq"] for line in lines(journal)]
    assert seqs == sorted(seqs)
    assert seqs[0] == 1
    assert len(seqs) < 20_000
    assert caplog.text.count("journal_lines_lost") == 1


def test_a_journal_that_is_abandoned_keeps_what_the_kernel_has(tmp_path: Path) -> None:
    journal = journal_beside(tmp_path)
    journal.write(events.State(state="kept"))
    journal.flush()
    journal.abandon()
    assert [line["state"] for line in lines(journal)] == ["kept"]
