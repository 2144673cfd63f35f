"""The dump: every record of any store, and whether the log is whole. It changes nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from dejamq_broker.store.dump import main
from store_making import GOLDEN, bodies, fill_queue, log_files, open_small, overwrite, settle


def dumped(capsys: pytest.CaptureFixture[str], directory: Path) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
    """Exit status, records, summary."""
    status = main([str(directory), "-o", "json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return status, lines[:-1], lines[-1]["summary"]


def snapshot(directory: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.parametrize("name", ["clean", "crash"])
def test_the_dump_of_a_rocketmq_store_says_what_its_manifest_says(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = Path(shutil.copytree(GOLDEN / name / "store", tmp_path / "store"))
    before = snapshot(directory)
    status, records, summary = dumped(capsys, directory)
    assert (status, summary["damages"], summary["records"]) == (0, [], len(records))
    assert snapshot(directory) == before
    by_offset = {record["log_offset"]: record for record in records}
    manifest = json.loads((GOLDEN / name / "manifest.json").read_text())
    for queue in manifest["queues"]:
        for expected in queue["records"]:
            found = by_offset[expected["log_offset"]]
            assert (found["topic"], found["queue_id"]) == (queue["topic"], queue["queue_id"])
            differing = {key for key in expected if found[key] != expected[key]} - {"properties", "sys_flag"}
            assert not differing
            assert found["properties"].items() <= expected["properties"].items()
    assert {record["magic"] for record in records} == {"V1", "V2"}
    assert [record["log_offset"] for record in records] == sorted(by_offset)


def test_damage_and_a_torn_end_are_told_and_are_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 10)
    store.close()
    overwrite(log_files(tmp_path)[0], 192 * 3 + 100, b"damage")
    overwrite(log_files(tmp_path)[0], 192 * 10, b"torn")
    status, records, summary = dumped(capsys, tmp_path)
    assert status == 1
    assert [record["queue_offset"] for record in records] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [(damage["log_offset"], damage["end"]) for damage in summary["damages"]] == [(576, 768), (1920, None)]
    assert main([str(tmp_path)]) == 1
    assert "DAMAGED at 576" in capsys.readouterr().out


def test_a_store_in_use_can_be_dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 500)
    settle(store)
    status, records, _ = dumped(capsys, tmp_path)
    assert (status, len(records)) == (0, len(bodies(500)))


def test_a_directory_that_is_no_store_gives_one_line_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere")]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "name the directory that holds commitlog/" in told
