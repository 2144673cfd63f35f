"""Verify: what is whole is called whole, and what a kill left is told from damage."""

import io
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from dejamq_broker.store import StoreConfig
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.index.file import IndexFile, IndexShape
from dejamq_broker.store.index.keys import Keys
from dejamq_broker.store.offline.verify import main, verify
from store_making import GOLDEN, SMALL, crashed_copy, log_files, open_small, overwrite, settle
from verify_making import (
    BODY_AT,
    COUNT,
    I32,
    I64,
    LOG_FILE,
    QUEUE_OFFSET_AT,
    Made,
    copied,
    fill,
    kinds,
    make_whole,
    verified,
    write,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make_whole(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def made(whole: Made, tmp_path: Path) -> Made:
    return copied(whole, tmp_path / "store")


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


@pytest.mark.slow
def test_whatever_byte_of_an_entry_is_changed_is_found(made: Made, chance: random.Random) -> None:
    """Queue entries and index entries hold nothing that the log does not say too, so no byte of them may differ."""
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
    file = IndexFile.load(made.index_file(-1), IndexShape(SMALL.max_hash_slot_num, SMALL.max_index_num))
    assert file is not None
    (last,) = file.entries(file.header.next_entry - 1, file.header.next_entry)
    again = [np.array([value], np.int64) for value in (last["hash"], last["log_offset"], file.header.end_timestamp_ms)]
    assert file.put(Keys(*again)) == 1
    file.write_out()
    report = verified(made.directory)
    assert (report.verdict, kinds(report)) == ("whole", {"index-twice"})


def test_messages_of_a_topic_that_was_deleted_are_not_missed(made: Made) -> None:
    write(made.directory / "config" / "topics.json", b'{"topicConfigTable":{"T":{}}}')
    shutil.rmtree(made.directory / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    (finding,) = verified(made.directory).findings
    assert (finding.kind, finding.severity, finding.where) == ("deleted", "note", "topic SCHEDULE_TOPIC_XXXX")


def test_a_topic_that_was_deleted_and_made_again_has_the_entries_of_the_younger_messages(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill(store, 100)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    (tmp_path / "dispatched.json").write_text(
        json.dumps({"log_offset": store.log_max, "queues": {}, "flushed": store.log_max})
    )
    again = open_small(tmp_path)
    assert again.max_offset("T", 0) == 0
    fill(again, 60)
    again.close()
    report = verified(tmp_path)
    assert (report.verdict, kinds(report)) == ("whole", {"made-again"})


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


@pytest.mark.slow
def test_a_reader_that_goes_away_ends_it_without_a_word(made: Made) -> None:
    made.entry(60, 12, I64.pack(77))
    command = f"{sys.executable} -m dejamq_broker.store.offline.verify {made.directory} | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=50, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", "")


def test_at_a_terminal_progress_is_told_and_wiped(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("dejamq_broker.store.offline.verify.TOLD_EVERY_S", 0)
    assert main([str(made.directory)]) == 0
    *told, last, end = terminal.getvalue().split("\r\x1b[K")
    assert last == "verify: 0.00 of 0.00 GiB"
    assert (told[0], end) == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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


@pytest.mark.parametrize("first", [True, False])
def test_a_record_that_claims_an_enormous_queue_offset_is_told_at_once(made: Made, first: bool) -> None:
    of_queue = [each for each in made.records if (each["topic"], each["queue_id"]) == ("T", 0)]
    garbled = of_queue[0 if first else 7]["log_offset"]
    made.overwrite(garbled + QUEUE_OFFSET_AT, I64.pack(1 << 60))
    report = verified(made.directory)
    assert report.verdict == "damaged"
    assert "queue-offset" in kinds(report)


def test_progress_reaches_the_end_of_the_log(made: Made) -> None:
    seen: list[tuple[int, int]] = []
    verify(StorePaths(made.directory), lambda done, in_all: seen.append((done, in_all)))
    assert seen == sorted(seen)
    assert seen[-1][0] == made.end
