"""Verify: every kind of damage, made by hand, is found and named with what to do; what is whole is called whole."""

import json
import random
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dejamq_broker.store import MessageStore, StoreConfig
from dejamq_broker.store.dump import dump
from dejamq_broker.store.index_file import IndexFile, Shape
from dejamq_broker.store.index_keys import Keys
from dejamq_broker.store.paths import StorePaths
from dejamq_broker.store.verify import Report, main, verify
from dejamq_proto.names import SCHEDULE_TOPIC
from dejamq_proto.record import SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK, Record, encode_properties
from store_making import GOLDEN, SMALL, crashed_copy, log_files, open_small, overwrite, settle, ticking

HOST = ("127.0.0.1", 10911)
COUNT = 640
LOG_FILE = 65_536
I32, I64 = struct.Struct(">i"), struct.Struct(">q")
SIZE_AT, MAGIC_AT, QUEUE_OFFSET_AT, LOG_OFFSET_AT, STORE_TIME_AT, BODY_AT = 0, 4, 20, 28, 56, 88


@dataclass(frozen=True)
class Made:
    """A whole store of several files, and what is in it."""

    directory: Path
    records: list[dict[str, Any]]
    end: int

    def patch(self, number: int, at: int, data: bytes) -> None:
        """Overwrite a part of a record."""
        self.overwrite(self.records[number]["log_offset"] + at, data)

    def overwrite(self, log_offset: int, data: bytes) -> None:
        overwrite(
            self.directory / "commitlog" / f"{log_offset // LOG_FILE * LOG_FILE:020d}", log_offset % LOG_FILE, data
        )

    def entry(self, queue_offset: int, at: int, data: bytes, queue: str = "T/0") -> None:
        """Overwrite a part of a queue entry."""
        place = queue_offset * 20
        overwrite(self.queue_file(place // 1000 * 1000, queue), place % 1000 + at, data)

    def queue_file(self, start: int, queue: str = "T/0") -> Path:
        return self.directory / "consumequeue" / queue / f"{start:020d}"

    def index_file(self, number: int) -> Path:
        return sorted((self.directory / "index").iterdir())[number]

    def index_entry(self, file: int, entry: int, at: int, data: bytes) -> None:
        overwrite(self.index_file(file), 40 + 97 * 4 + entry * 20 + at, data)

    def blank(self) -> int:
        """Log offset of the first file's blank."""
        last = max(
            (each for each in self.records if each["log_offset"] < LOG_FILE), key=lambda each: each["log_offset"]
        )
        return int(last["log_offset"] + last["store_size"])


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        properties = {"UNIQ_KEY": f"{number:032X}", "KEYS": f"k{number} shared"}
        if number % 3:
            properties["TAGS"] = f"Tag{number % 3}"
        store.put(Record("T", number % 2, b"." * 150, encode_properties(properties), born_host=HOST, store_host=HOST))
        if number % 100 == 0:
            delayed = encode_properties(
                {"UNIQ_KEY": f"{number:031X}d", "DELAY": "3", "REAL_TOPIC": "T", "REAL_QID": "0"}
            )
            store.put(Record(SCHEDULE_TOPIC, 2, b"later", delayed, born_host=HOST, store_host=HOST))
    for kind in (SYS_TRANSACTION_PREPARED, SYS_TRANSACTION_ROLLBACK):
        raw = encode_properties({"UNIQ_KEY": f"{kind:032X}"})
        store.put(Record("T", 0, b"half", raw, sys_flag=kind, born_host=HOST, store_host=HOST))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("whole")
    store = MessageStore.open(directory, SMALL, clock_ms=ticking())
    fill(store, COUNT)
    store.close()
    (directory / "config").mkdir()
    (directory / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    (directory / "config" / "delayOffset.json").write_text('{"offsetTable":{1:13,2:6\n}}')
    *records, last = dump(StorePaths(directory))
    return Made(directory, records, last["summary"]["log_end"])


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    directory = tmp_path / "store"
    shutil.copytree(whole.directory, directory)
    return Made(directory, whole.records, whole.end)


def verified(directory: Path) -> Report:
    return verify(StorePaths(directory), lambda done, in_all: None)


def kinds(report: Report) -> set[str]:
    return {finding.kind for finding in report.findings}


def truncate(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def spoil_settings(made: Made) -> None:
    write(made.directory / "config" / "topics.json", b'{"a":')
    write(made.directory / "config" / "topics.json.bak", b"{}")


Harm = Callable[[Made], None]

IN_LOG: dict[str, tuple[Harm, str, str]] = {
    "a body that was changed": (lambda m: m.patch(50, BODY_AT + 3, b"X"), "log-record", "CRC"),
    "a magic that is none": (lambda m: m.patch(50, MAGIC_AT, b"none"), "log-record", "magic"),
    "a size that cannot be": (lambda m: m.patch(50, SIZE_AT, I32.pack(1 << 30)), "log-record", "cannot be"),
    "a record from another place": (lambda m: m.patch(50, LOG_OFFSET_AT, I64.pack(7)), "log-record", "belongs at 7"),
    "zeros in the middle": (lambda m: m.overwrite(8192, bytes(4096)), "log-record", ""),
    "a missing file": (lambda m: log_files(m.directory)[1].unlink(), "log-file", "65536 is missing"),
    "a short file": (lambda m: truncate(log_files(m.directory)[1], 9000), "log-file", "9000 bytes instead of 65536"),
    "a short last file": (lambda m: truncate(log_files(m.directory)[-1], 100), "log-file", "100 bytes"),
    "a foreign file": (lambda m: write(m.directory / "commitlog" / "notes", b"x"), "foreign", "notes"),
    "a torn end": (lambda m: m.overwrite(m.end, b"\0\0\1\0\xda\xa3\x20\xa7torn"), "log-end", "torn"),
    "bytes far behind the end": (lambda m: m.overwrite(m.end + 2000, b"stray"), "log-behind", "not only zeros"),
    "a blank of a wrong size": (lambda m: m.overwrite(m.blank(), I32.pack(5)), "blank", "says 5 bytes"),
    "a queue offset given twice": (lambda m: m.patch(50, QUEUE_OFFSET_AT, I64.pack(3)), "queue-offset", "3, which an"),
    "a queue offset left out": (lambda m: m.patch(50, QUEUE_OFFSET_AT, I64.pack(900)), "queue-offset", ""),
    "a store time that goes back": (lambda m: m.patch(50, STORE_TIME_AT, I64.pack(5)), "store-time", "stored at 5 ms"),
}  # fmt: skip
IN_QUEUES: dict[str, tuple[Harm, str, str]] = {
    "an entry that points elsewhere": (lambda m: m.entry(60, 0, I64.pack(77)), "entry", "queue T/0@60"),
    "an entry of a wrong size": (lambda m: m.entry(60, 8, I32.pack(77)), "entry", "77 bytes"),
    "a tags code of another tag": (lambda m: m.entry(60, 12, I64.pack(77)), "entry", "tags code 77"),
    "a delivery time of another delay": (
        lambda m: m.entry(2, 12, I64.pack(1_700_000_000_000), "SCHEDULE_TOPIC_XXXX/2"), "entry", "XXXX/2@2"
    ),
    "an entry that is empty": (lambda m: m.entry(60, 0, bytes(20)), "entry-missing", "queue T/0@60"),
    "the last entries empty": (lambda m: m.entry(COUNT // 2 - 2, 0, bytes(40)), "entry-missing", "(2 times)"),
    "a filler for a record": (lambda m: m.entry(60, 0, struct.pack(">qiq", 0, 0x7FFFFFFF, 0)), "entry", "a filler"),
    "an entry too many": (lambda m: m.entry(COUNT // 2, 0, struct.pack(">qiq", 0, 300, 0)), "entry", "of no record"),
    "an entry behind the log": (
        lambda m: m.entry(COUNT // 2, 0, struct.pack(">qiq", 1 << 30, 300, 0)), "entry-behind", "behind the log's end"
    ),
    "an entry apart": (lambda m: m.entry(COUNT // 2 + 5, 0, struct.pack(">qiq", 0, 300, 0)), "entry-apart", "stands"),
    "a missing queue file": (lambda m: m.queue_file(1000).unlink(), "queue-file", "1000 is missing"),
    "a short queue file": (lambda m: truncate(m.queue_file(1000), 30), "queue-file", "30 bytes instead of 1000"),
    "a queue without its folder": (lambda m: shutil.rmtree(m.directory / "consumequeue/T/1"), "entry-missing", "T/1@0"),
    "no queues at all": (lambda m: shutil.rmtree(m.directory / "consumequeue"), "entry-missing", "T/0@0"),
    "a foreign file in a queue": (lambda m: write(m.queue_file(0).with_name("x"), b""), "foreign", "x is no file"),
}  # fmt: skip
IN_INDEX: dict[str, tuple[Harm, str, str]] = {
    "an empty slot": (lambda m: overwrite(m.index_file(1), 40, bytes(97 * 4)), "index-slot", "instead of"),
    "a chain that leads elsewhere": (lambda m: m.index_entry(1, 200, 16, I32.pack(3)), "index-chain", "entry 200"),
    "a chain that is a circle": (lambda m: m.index_entry(1, 200, 16, I32.pack(200)), "index-chain", "goes on at 200"),
    "a hash of another key": (lambda m: m.index_entry(1, 200, 0, I32.pack(3)), "index-missing", "a key of the record"),
    "an entry of no record": (lambda m: m.index_entry(1, 200, 4, I64.pack(5)), "index-missing", "is not in it"),
    "a header of another file": (lambda m: overwrite(m.index_file(1), 24, I64.pack(5)), "index-file", "no header"),
    "a short index file": (lambda m: truncate(m.index_file(1), 999), "index-file", "999 bytes"),
    "a missing index file": (lambda m: m.index_file(1).unlink(), "index-missing", "is not in it"),
    "the last index file missing": (lambda m: m.index_file(-1).unlink(), "index-late", "keys behind it"),
    "an entry of another time": (lambda m: m.index_entry(1, 200, 12, I32.pack(9)), "index-time", "another time"),
    "an index file of another time": (lambda m: overwrite(m.index_file(1), 8, I64.pack(5)), "index-time", "another"),
    "a wrong number of slots": (lambda m: overwrite(m.index_file(1), 32, I32.pack(5)), "index-header", "5 slots"),
    "no index at all": (lambda m: shutil.rmtree(m.directory / "index"), "index-file", "when the index was marked"),
    "a foreign file in the index": (lambda m: write(m.directory / "index" / "x", b""), "foreign", "index/x"),
}  # fmt: skip
IN_SMALL_FILES: dict[str, tuple[Harm, str, str]] = {
    "a short checkpoint": (lambda m: truncate(m.directory / "checkpoint", 40), "checkpoint", "40 bytes"),
    "a checkpoint from the future": (
        lambda m: overwrite(m.directory / "checkpoint", 8, I64.pack(1 << 50)), "checkpoint", "time of the queues"
    ),
    "a mark that cannot be read": (lambda m: write(m.directory / "dispatched.json", b"{"), "mark", "cannot be read"),
    "a mark behind the log's end": (
        lambda m: write(m.directory / "dispatched.json", b'{"log_offset":99999999,"queues":{}}'), "mark", "99999999"
    ),
    "an index mark that is none": (lambda m: write(m.directory / "indexed.json", b"[]"), "mark", "indexed.json"),
    "settings that are no JSON": (
        lambda m: write(m.directory / "config" / "topics.json", b'{"a":'), "config", "move it away to start without"
    ),
    "settings with a backup": (spoil_settings, "config", "its .bak is read instead"),
}  # fmt: skip
HARMS = IN_LOG | IN_QUEUES | IN_INDEX | IN_SMALL_FILES


@pytest.mark.parametrize("name", HARMS)
def test_it_is_found_and_named(name: str, made: Made) -> None:
    harm, kind, words = HARMS[name]
    harm(made)
    report = verified(made.directory)
    told = [finding.text for finding in report.findings if finding.kind == kind]
    assert any(words in text for text in told), [finding.text for finding in report.findings]
    recovers = kind == "entry-behind"
    assert report.verdict == ("whole" if recovers else "damaged")
    assert all("\n" not in finding.text for finding in report.findings)


def test_a_whole_store_is_whole(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in made.directory.rglob("*") if path.is_file()}
    assert main([str(made.directory)]) == 0
    shown = capsys.readouterr()
    keys = 3 * COUNT + len(range(0, COUNT, 100)) + 1
    assert shown.out == (f"whole: {len(made.records)} records in 3 queues, {keys} index entries, log 0..{made.end}\n")
    assert shown.err == ""
    assert {path: path.read_bytes() for path in made.directory.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_stores_of_a_real_rocketmq_are_whole(name: str) -> None:
    report = verified(GOLDEN / name / "store")
    assert report.verdict == "whole"
    assert kinds(report) == ({"killed"} if name == "crash" else set())
    assert report.records > 400
    assert report.index_entries > 700


def test_one_harm_is_told_once_with_how_often(made: Made) -> None:
    for queue_offset in range(40, 60):
        made.entry(queue_offset, 12, I64.pack(1))
    (finding,) = verified(made.directory).findings
    assert (finding.kind, finding.count) == ("entry", 20)
    assert finding.where == "queue T/0@40"


def test_whatever_byte_of_an_entry_is_changed_is_found(made: Made) -> None:
    """Queue entries and index entries hold nothing that the log does not say too, so no byte of them may differ."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(60):
        if chance.random() < 0.5:
            path, at = made.queue_file(chance.randrange(6) * 1000), chance.randrange(1000)
        else:  # not entry 1 of a file, whose seconds nobody looks at
            path, at = made.index_file(chance.randrange(6)), 40 + 97 * 4 + chance.randrange(40, 300 * 20)
        before = path.read_bytes()
        overwrite(path, at, bytes([before[at] ^ (1 << chance.randrange(8))]))
        assert verified(made.directory).verdict == "damaged", (path.name, at)
        path.write_bytes(before)


def test_harms_in_several_places_are_all_told(made: Made) -> None:
    made.patch(50, BODY_AT, b"X")
    made.entry(290, 0, I64.pack(77))
    made.index_entry(2, 20, 16, I32.pack(3))
    write(made.directory / "checkpoint", b"")
    assert kinds(verified(made.directory)) >= {"log-record", "entry", "index-chain", "checkpoint"}


def test_a_lost_record_alone_does_not_make_its_queue_damaged(made: Made) -> None:
    made.patch(51, BODY_AT, b"X")
    report = verified(made.directory)
    assert [finding.kind for finding in report.findings if finding.kind.startswith(("entry", "queue"))] == []


def test_what_a_kill_left_at_the_ends_is_no_damage(made: Made) -> None:
    write(made.directory / "abort", b"4711")
    made.overwrite(made.end, b"\0\0\1\0\xda\xa3\x20\xa7torn")
    overwrite(made.index_file(-1), 0, bytes(40))
    report = verified(made.directory)
    assert report.verdict == "whole"
    assert kinds(report) == {"killed", "log-end", "index-late"}
    assert "process 4711" in report.findings[0].text


def test_a_store_whose_owner_was_killed_is_called_so(tmp_path: Path) -> None:
    store = open_small(tmp_path / "store")
    fill(store, 100)
    settle(store)
    report = verified(crashed_copy(tmp_path / "store", tmp_path / "copy"))
    assert report.verdict == "whole"
    assert "killed" in kinds(report)
    assert kinds(report) <= {"killed", "entry-missing", "index-late", "checkpoint"}


def test_entries_missing_at_the_end_are_no_damage_after_a_kill_but_others_are(made: Made) -> None:
    write(made.directory / "abort", b"4711")
    made.entry(COUNT // 2 - 20, 0, bytes(20 * 20))
    (killed, late) = verified(made.directory).findings
    assert (killed.kind, late.kind, late.severity, late.count) == ("killed", "entry-missing", "recovers", 20)
    assert late.where == f"queue T/0@{COUNT // 2 - 20}"
    made.entry(60, 0, bytes(40))
    assert verified(made.directory).verdict == "damaged"


def test_of_a_store_in_use_nobody_can_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_small(tmp_path)
    fill(store, 100)
    settle(store)
    overwrite(log_files(tmp_path)[0], 300 + BODY_AT, b"X")
    assert main([str(tmp_path)]) == 3
    shown = capsys.readouterr().out
    assert "a running process has the store open" in shown
    assert shown.splitlines()[-1].startswith("cannot tell: ")


def test_a_half_written_last_index_file_is_what_a_kill_leaves_and_damage_without_one(made: Made) -> None:
    made.index_entry(-1, 5, 16, I32.pack(9))
    assert verified(made.directory).verdict == "damaged"
    write(made.directory / "abort", b"4711")
    assert verified(made.directory).verdict == "whole"
    made.index_entry(0, 5, 16, I32.pack(9))
    assert verified(made.directory).verdict == "damaged"


def test_the_last_record_twice_in_the_index_is_what_a_rocketmq_does_after_a_kill(made: Made) -> None:
    file = IndexFile.load(made.index_file(-1), Shape(SMALL.max_hash_slot_num, SMALL.max_index_num))
    assert file is not None
    (last,) = file.entries(file.header.next_entry - 1, file.header.next_entry)
    again = [np.array([value], np.int64) for value in (last["hash"], last["log_offset"], file.header.end_timestamp_ms)]
    assert file.put(Keys(*again)) == 1
    file.write_out()
    report = verified(made.directory)
    assert (report.verdict, kinds(report)) == ("whole", {"index-twice"})


def test_records_that_expired_are_not_missed(made: Made) -> None:
    log_files(made.directory)[0].unlink()
    for start in (0, 1000):
        for queue in ("T/0", "T/1"):
            last = [each for each in made.records if (each["topic"], each["queue_id"]) == ("T", int(queue[-1]))]
            if last[start // 20 + 49]["log_offset"] < LOG_FILE:
                made.queue_file(start, queue).unlink()
    report = verified(made.directory)
    assert (report.verdict, report.log_start) == ("whole", LOG_FILE)


def test_other_delays_than_the_usual_ones_are_no_damage(tmp_path: Path) -> None:
    config = StoreConfig(
        mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=1000, max_hash_slot_num=97,
        max_index_num=300, message_delay_level="1s 2s 7s",
    )  # fmt: skip
    store = open_small(tmp_path, config)
    fill(store, 300)
    store.close()
    assert verified(tmp_path).findings == []


def test_an_empty_store_is_whole(tmp_path: Path) -> None:
    open_small(tmp_path).close()
    report = verified(tmp_path)
    assert (report.verdict, report.records) == ("whole", 0)


def test_programs_get_the_same_as_one_line_of_json(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    made.entry(60, 12, I64.pack(77))
    assert main([str(made.directory), "-o", "json"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert (row["verdict"], row["records"], row["log_end"]) == ("damaged", len(made.records), made.end)
    (finding,) = row["findings"]
    assert (finding["kind"], finding["severity"], finding["where"]) == ("entry", "damage", "queue T/0@60")


def test_a_directory_that_is_no_store_gives_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_store_that_cannot_be_read_gives_one_line_and_status_3(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    (made.directory / "checkpoint").unlink()
    (made.directory / "checkpoint").symlink_to(made.directory / "checkpoint")
    (made.directory / "config" / "loop.json").symlink_to(made.directory / "config" / "loop.json")
    assert main([str(made.directory)]) == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_kinds_of_files_that_are_not_supported_are_told_with_status_3(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    (made.directory / "consumequeue_ext" / "T" / "0").mkdir(parents=True)
    (made.directory / "consumequeue_ext" / "T" / "0" / f"{0:020d}").touch()
    assert main([str(made.directory)]) == 3
    assert "extended consume queues are not supported" in capsys.readouterr().err


def test_progress_reaches_the_end_of_the_log(made: Made) -> None:
    seen: list[tuple[int, int]] = []
    verify(StorePaths(made.directory), lambda done, in_all: seen.append((done, in_all)))
    assert seen == sorted(seen)
    assert seen[-1][0] == made.end
