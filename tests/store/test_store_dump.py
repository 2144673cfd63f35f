"""The dump: every record of any store, and whether the log is whole. It changes nothing."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store.dump import dump, main
from dejamq_broker.store.files.paths import StorePaths
from dejamq_proto.records.compression import Compression, compress
from dejamq_proto.records.record import Record, java_hash
from store_making import GOLDEN, bodies, fill_queue, log_files, open_small, overwrite, run_of, settle

COMMAND = [sys.executable, "-m", "dejamq_broker.store.dump"]
CLIENT_MADE = {"MIN_OFFSET", "MAX_OFFSET", "CLUSTER"}
"""What a RocketMQ client adds to the properties of a message that it read."""
COMPRESSION_BITS = 0x701


def lines(capsys: pytest.CaptureFixture[str], directory: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    status = main([str(directory), "-o", "json", *options])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def dumped(
    capsys: pytest.CaptureFixture[str], directory: Path, *options: str
) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Exit status, records, summary."""
    status, found = lines(capsys, directory, *options)
    return status, found[:-1], found[-1]["summary"]


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def manifest_of(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / name / "manifest.json").read_text())
    return content


def filled(directory: Path, count: int = 10) -> Path:
    store = open_small(directory)
    fill_queue(store, count)
    store.close()
    return directory


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_every_key_of_every_record_of_a_rocketmq_store_is_as_its_manifest_says(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(shutil.copytree(GOLDEN / name / "store", tmp_path / "store"))
    before = snapshot(directory)
    status, records, summary = dumped(capsys, directory)
    assert (status, summary["damages"], summary["records"]) == (0, [], len(records))
    assert snapshot(directory) == before
    by_offset = {record["log_offset"]: record for record in records}
    checked = 0
    for queue in manifest_of(name)["queues"]:
        for expected in queue["records"]:
            found = by_offset[expected["log_offset"]]
            stored = {key: text for key, text in expected["properties"].items() if key not in CLIENT_MADE}
            stored |= {key: text for key, text in found["properties"].items() if key in CLIENT_MADE}
            absent = {"tags": None, "keys": None}  # the manifest leaves out what a record has not
            wanted = absent | expected | {"topic": queue["topic"], "queue_id": queue["queue_id"], "properties": stored}
            wanted["sys_flag"] |= found["sys_flag"] & COMPRESSION_BITS
            assert {key: found[key] for key in wanted} == wanted
            assert found.keys() - wanted.keys() == {"magic", "born_host", "store_host"}
            checked += 1
    assert checked > 300
    assert {record["magic"] for record in records} == {"V1", "V2"}
    assert [record["log_offset"] for record in records] == sorted(by_offset)


def test_damage_and_a_torn_end_are_told_and_are_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path)
    overwrite(log_files(tmp_path)[0], 192 * 3 + 100, b"damage")
    overwrite(log_files(tmp_path)[0], 192 * 10, b"torn")
    status, records, summary = dumped(capsys, tmp_path)
    assert status == 1
    assert [record["queue_offset"] for record in records] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [(damage["log_offset"], damage["end"]) for damage in summary["damages"]] == [(576, 768), (1920, None)]
    assert main([str(tmp_path)]) == 1
    assert "DAMAGED at 576" in capsys.readouterr().out


def test_a_missing_and_a_short_file_are_told_and_the_rest_is_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = log_files(filled(tmp_path, 1500))
    whole = dumped(capsys, tmp_path)[1]
    files[1].unlink()
    with files[3].open("r+b") as short:
        short.truncate(10_000)
    status, records, summary = dumped(capsys, tmp_path)
    assert status == 1
    reasons = [damage["reason"] for damage in summary["damages"]]
    assert any("00000000000000065536 is missing" in reason for reason in reasons)
    assert any("00000000000000196608 has 10000 bytes instead of 65536" in reason for reason in reasons)
    torn = range(196_608 + 10_001, 262_145)
    left = [
        each["log_offset"]
        for each in whole
        if each["log_offset"] // 65536 != 1 and each["log_offset"] + each["store_size"] not in torn
    ]
    assert [record["log_offset"] for record in records] == left


def test_only_what_was_asked_for_is_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_small(tmp_path)
    store.append_run(run_of([("T" if number % 2 else "U", number % 3, b"x") for number in range(60)]))
    store.close()
    _, everything, _ = dumped(capsys, tmp_path)
    _, some, summary = dumped(capsys, tmp_path, "--topic", "T", "--queue", "2")
    assert some == [each for each in everything if (each["topic"], each["queue_id"]) == ("T", 2)]
    assert summary["records"] == len(some) == 10
    begin, end = everything[20]["log_offset"], everything[30]["log_offset"]
    assert dumped(capsys, tmp_path, "--from", str(begin), "--to", str(end))[1] == everything[20:30]
    assert dumped(capsys, tmp_path, "--from", str(begin - 1), "--to", str(end))[1] == everything[20:30]
    assert dumped(capsys, tmp_path, "--from", str(1 << 40))[1] == []


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_queue_entries_of_a_rocketmq_store_point_at_their_records(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, entries = lines(capsys, GOLDEN / name / "store", "--what", "queues")
    keys = ("topic", "queue_id", "queue_offset", "log_offset", "size")
    told = {
        (queue["topic"], queue["queue_id"], record["queue_offset"], record["log_offset"], record["store_size"])
        for queue in manifest_of(name)["queues"]
        for record in queue["records"]
    }
    found = {tuple(entry[key] for key in keys) for entry in entries}
    assert status == 0
    assert len(found) == len(entries)
    assert found >= told
    assert {place[0] for place in found - told} == {"TRANS_CHECK_MAX_TIME_TOPIC"}  # its reader was not asked
    some = lines(capsys, GOLDEN / name / "store", "--what", "queues", "--topic", "GoldenTopic", "--queue", "0",
                 "--from", "10", "--to", "13")[1]  # fmt: skip
    assert [entry["queue_offset"] for entry in some] == [10, 11, 12]


@pytest.mark.parametrize("kind", Compression)
def test_the_digest_is_of_the_body_that_a_consumer_sees(
    kind: Compression, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b"text that becomes shorter " * 100
    store = open_small(tmp_path)
    store.put(Record("T", 0, compress(body, kind, 5), sys_flag=kind.sys_flag))
    store.put(Record("T", 0, b"no such format", sys_flag=kind.sys_flag))
    store.close()
    _, records, _ = dumped(capsys, tmp_path)
    assert [record["body_sha256"] for record in records] == [hashlib.sha256(body).hexdigest(), None]


def test_settings_files_come_as_strict_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, files = lines(capsys, GOLDEN / "clean" / "store", "--what", "config")
    contents = {line["file"]: line["content"] for line in files}
    assert status == 0
    assert contents["delayOffset.json"]["offsetTable"] == {"1": 13, "2": 6}
    assert len(contents) == 14


def test_the_checkpoint_comes_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, GOLDEN / "clean" / "store", "--what", "checkpoint")[1]
    newest = max(record["store_timestamp"] for queue in manifest_of("clean")["queues"] for record in queue["records"])
    assert line["checkpoint"]["log_timestamp_ms"] <= newest
    assert line["checkpoint"]["log_timestamp_ms"] > newest - 60_000


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_index_entries_of_a_rocketmq_store_are_those_that_its_manifest_found(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, found = lines(capsys, GOLDEN / name / "store", "--what", "index")
    headers = [line["content"] for line in found if "file" in line]
    entries = {(line["hash"], line["log_offset"]) for line in found if "entry" in line}
    assert status == 0
    assert sum(header["next_entry"] - 1 for header in headers) == len(found) - len(headers)
    queries = manifest_of(name)["query_by_key"]
    assert queries
    for query in queries:
        hash_value = abs(java_hash(f"{query['topic']}#{query['key']}"))
        assert {(hash_value, log_offset) for log_offset in query["log_offsets"]} <= entries


@pytest.mark.parametrize("what", ["log", "queues", "index", "checkpoint", "config"])
def test_people_get_lines_of_text(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(GOLDEN / "clean" / "store"), "--what", what]) == 0
    shown = capsys.readouterr().out
    assert shown
    assert not shown.startswith("{")


def test_a_store_in_use_can_be_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 500)
    settle(store)
    status, records, _ = dumped(capsys, tmp_path)
    assert (status, len(records)) == (0, len(bodies(500)))


@pytest.mark.parametrize("after", [0, 1])
def test_files_that_expire_during_a_dump_are_no_damage(tmp_path: Path, after: int) -> None:
    filled(tmp_path, 1300)
    files = log_files(tmp_path)
    lines = dump(StorePaths(tmp_path))
    known = [next(lines)["log_offset"] for _ in range(after * 341 + 1)]
    for path in files[: after + 2]:
        path.unlink()
    *rest, last = lines
    assert last["summary"]["damages"] == []
    offsets = known + [line["log_offset"] for line in rest]
    assert (after + 2) * 65_536 in offsets
    assert last["summary"]["log_end"] == offsets[-1] + 192


@pytest.mark.slow
def test_a_long_log_is_dumped_in_constant_memory(tmp_path: Path) -> None:
    """As much memory for eight times the log, when nobody keeps the lines."""

    def peak(directory: Path, count: int) -> int:
        paths = StorePaths(filled(directory, count))
        tracemalloc.start()
        for _ in dump(paths):
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(tmp_path / "long", 8000) < 1.5 * peak(tmp_path / "short", 1000)


def test_a_reader_that_goes_away_ends_the_dump_without_a_word(tmp_path: Path) -> None:
    filled(tmp_path, 3000)
    with subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def hear_ctrl_c() -> None:
    """A shell that runs the tests in the background has them and all their children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_dump_without_a_word(tmp_path: Path) -> None:
    filled(tmp_path, 3000)
    with subprocess.Popen(
        [*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_ctrl_c
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun, and waits for room in the pipe
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (130, b"")


def test_a_directory_that_is_no_store_gives_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "name the directory that holds commitlog/" in told


def test_an_index_file_that_is_none_is_told_and_is_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(shutil.copytree(GOLDEN / "clean" / "store", tmp_path / "store"))
    first, *others = sorted((directory / "index").iterdir())
    first.write_bytes(b"short")
    status, found = lines(capsys, directory, "--what", "index")
    assert status == 1
    assert found[0] == {"file": first.name, "error": "no index file, or a damaged one"}
    assert [line["file"] for line in found if "file" in line] == [first.name, *(each.name for each in others)]


def test_settings_that_cannot_be_read_are_told_and_the_others_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(shutil.copytree(GOLDEN / "clean" / "store", tmp_path / "store"))
    (directory / "config").mkdir(exist_ok=True)
    (directory / "config" / "a.json").write_text("{'")
    (directory / "config" / "b.json").write_text('{"x":{1:2}}')
    status, found = lines(capsys, directory, "--what", "config")
    by_name = {line["file"]: line for line in found}
    assert (status, "error" in by_name["a.json"]) == (1, True)
    assert by_name["b.json"]["content"] == {"x": {"1": 2}}


def test_a_reader_that_has_enough_is_no_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    with subprocess.Popen([*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 141
