"""Every kind of damage, made by hand, is found and named with what to do: one row each."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from store_making import log_files, overwrite
from verify_making import (
    BODY_AT,
    COUNT,
    I32,
    I64,
    LOG_FILE,
    LOG_OFFSET_AT,
    MAGIC_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SIZE_AT,
    STORE_TIME_AT,
    TOPIC_AT,
    Made,
    copied,
    make_whole,
    truncate,
    verified,
    write,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    return copied(whole, tmp_path / "store")


def spoil_settings(made: Made) -> None:
    write(made.directory / "config" / "topics.json", b'{"a":')
    write(made.directory / "config" / "topics.json.bak", b"{}")


def zeros_before_a_gap(made: Made) -> None:
    log_files(made.directory)[1].unlink()
    made.overwrite(made.records[50]["log_offset"], bytes(LOG_FILE - made.records[50]["log_offset"]))


Harm = Callable[[Made], object]

IN_LOG: dict[str, tuple[Harm, str, str]] = {
    "a body that was changed": (lambda m: m.patch(50, BODY_AT + 3, b"X"), "log-record", "CRC"),
    "a magic that is none": (lambda m: m.patch(50, MAGIC_AT, b"none"), "log-record", "magic"),
    "a size that cannot be": (lambda m: m.patch(50, SIZE_AT, I32.pack(1 << 30)), "log-record", "cannot be"),
    "a record from another place": (lambda m: m.patch(50, LOG_OFFSET_AT, I64.pack(7)), "log-record", "belongs at 7"),
    "zeros in the middle": (lambda m: m.overwrite(8192, bytes(4096)), "log-record", ""),
    "a missing file": (lambda m: log_files(m.directory)[1].unlink(), "log-file", "65536 is missing"),
    "zeros before a missing file": (zeros_before_a_gap, "log-record", "zeros where a record must be"),
    "a file at an odd place": (
        lambda m: log_files(m.directory)[-1].rename(m.directory / "commitlog" / f"{3 * LOG_FILE + 7:020d}"), "log-file",
        "does not begin at a multiple",
    ),
    "a short file": (lambda m: truncate(log_files(m.directory)[1], 9000), "log-file", "9000 bytes instead of 65536"),
    "a short last file": (lambda m: truncate(log_files(m.directory)[-1], 100), "log-file", "100 bytes"),
    "a foreign file": (lambda m: write(m.directory / "commitlog" / "notes", b"x"), "foreign", "notes"),
    "a torn end": (lambda m: m.overwrite(m.end, b"\0\0\1\0\xda\xa3\x20\xa7torn"), "log-end", "torn"),
    "bytes far behind the end": (lambda m: m.overwrite(m.end + 2000, b"stray"), "log-behind", "not only zeros"),
    "a blank of a wrong size": (lambda m: m.overwrite(m.blank(), I32.pack(5)), "blank", "says 5 bytes"),
    "a queue offset given twice": (lambda m: m.patch(50, QUEUE_OFFSET_AT, I64.pack(3)), "queue-offset", "3, which an"),
    "a queue offset left out": (lambda m: m.patch(50, QUEUE_OFFSET_AT, I64.pack(900)), "queue-offset", ""),
    "a topic that no queue can have": (lambda m: m.patch(50, TOPIC_AT, b"/"), "log-record", "topic '/', queue 1"),
    "a topic that is no text": (lambda m: m.patch(50, TOPIC_AT, b"\xff"), "log-record", "is not UTF-8"),
    "a topic that is another": (lambda m: m.patch(50, TOPIC_AT, b"U"), "queue-offset", "queue T/1@24"),
    "a queue id below zero": (lambda m: m.patch(50, QUEUE_ID_AT, I32.pack(-2)), "log-record", "topic 'T', queue -2"),
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
    "a hash that no key has": (lambda m: m.index_entry(1, 200, 0, I32.pack(-3)), "index-chain", "the hash -3"),
    "a hash of another key": (lambda m: m.index_entry(1, 200, 0, I32.pack(3)), "index-missing", "a key of the record"),
    "an entry of no record": (lambda m: m.index_entry(1, 200, 4, I64.pack(5)), "index-missing", "is not in it"),
    "a header of another file": (lambda m: overwrite(m.index_file(1), 24, I64.pack(5)), "index-file", "no header"),
    "a short index file": (lambda m: truncate(m.index_file(1), 999), "index-file", "999 bytes"),
    "a missing index file": (lambda m: m.index_file(1).unlink(), "index-missing", "is not in it"),
    "the last index file missing": (lambda m: m.index_file(-1).unlink(), "index-late", "keys behind it"),
    "an entry of another time": (lambda m: m.index_entry(1, 200, 12, I32.pack(9)), "index-time", "another time"),
    "an index file of another time": (lambda m: overwrite(m.index_file(1), 8, I64.pack(5)), "index-time", "another"),
    "an index file that begins at no time": (
        lambda m: overwrite(m.index_file(1), 0, I64.pack(1 << 62)), "index-header", "first time is 4611686018427387904"
    ),
    "an index file that ends at no time": (
        lambda m: overwrite(m.index_file(1), 8, I64.pack(1 << 62)), "index-header", "s apart"
    ),
    "an index file that begins at no record": (
        lambda m: overwrite(m.index_file(1), 16, I64.pack(5)), "index-header", "other log offsets"
    ),
    "more index entries than fit": (
        lambda m: overwrite(m.index_file(1), 36, I32.pack(301)), "index-file", "no header that fits"
    ),
    "fewer index entries than there are": (
        lambda m: overwrite(m.index_file(1), 36, I32.pack(100)), "index-header", "other log offsets"
    ),
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
    "a backup of settings that is no JSON": (
        lambda m: write(m.directory / "config" / "topics.json.bak", b"{"), "config", "replaced with the next change"
    ),
    "settings that are no table": (
        lambda m: write(m.directory / "config" / "topics.json", b"[]"), "config", "holds no JSON object"
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


@pytest.mark.parametrize("name", [b"/", b".", b"\0"])
def test_without_settings_too_a_garbled_topic_ends_no_look(name: bytes, made: Made) -> None:
    """It came to "cannot read the store", and nothing else was told."""
    shutil.rmtree(made.directory / "config")
    made.patch(50, TOPIC_AT, name)
    made.entry(200, 12, I64.pack(77))
    told = {(finding.kind, finding.where) for finding in verified(made.directory).findings}
    assert {("log-record", f"log {made.records[50]['log_offset']}"), ("entry", "queue T/0@200")} <= told
