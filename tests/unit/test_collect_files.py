"""Evidence files of ``dejamq collect``: whole lines within a size, and where the trace topic was read to."""

import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dejamq_cli.collecting.files import LEAST_BYTES, EvidenceFiles
from dejamq_proto.codes import ConfigError
from evidence import lines_of

TOPIC = "traces"
written: list[int] = []


@asynccontextmanager
async def opened(folder: Path, most_bytes: int = LEAST_BYTES, topic: str = TOPIC) -> AsyncIterator[EvidenceFiles]:
    files = EvidenceFiles(folder, most_bytes, topic, lambda: {"session": "s"}, written.append)
    try:
        yield files
    finally:
        await files.close()


def paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("evidence-*"))


def trace(queue_offset: int, text: str = "", broker: str = "broker-a", queue_id: int = 0) -> bytes:
    line = {"kind": "trace", "broker": broker, "queue_id": queue_id, "queue_offset": queue_offset, "body": text}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def put(files: EvidenceFiles, *offsets: int, text: str = "") -> None:
    for offset in offsets:
        files.write_trace(trace(offset, text), "broker-a", 0, offset + 1)


async def test_each_file_begins_with_what_it_is_and_where_the_trace_topic_was_read_to(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, *range(100), text="x" * 2_000)
    heads = [line for line in lines_of(tmp_path) if line["kind"] == "session"]
    assert len(heads) == len(paths(tmp_path)) > 2
    assert [(one["event"], one["format"], one["session"], one["trace_topic"]) for one in heads] == [
        ("file", 1, "s", TOPIC) for _ in heads
    ]
    assert [one["file"] for one in heads] == list(range(1, len(heads) + 1))
    before = 0
    for line in lines_of(tmp_path):
        if line["kind"] == "trace":
            before = line["queue_offset"] + 1
        else:
            assert line["trace_next"] == ({"broker-a": {"0": before}} if before else {})


async def test_full_files_are_gzipped_and_the_newest_stays_plain(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, *range(100), text="x" * 2_000)
    *full, newest = paths(tmp_path)
    assert {path.name[-9:] for path in full} == {".jsonl.gz"}
    assert newest.suffix == ".jsonl"
    assert [line["queue_offset"] for line in lines_of(tmp_path) if line["kind"] == "trace"] == list(range(100))


async def test_all_files_together_stay_within_the_size_and_the_newest_evidence_is_kept(tmp_path: Path) -> None:
    noise = iter(json.dumps([hash((number, place)) for place in range(200)]) for number in range(1_000))
    sizes = []
    async with opened(tmp_path) as files:
        for number, text in enumerate(noise):
            put(files, number, text=text)
            sizes.append(sum(path.stat().st_size for path in paths(tmp_path) if path.exists()))
        assert files.removed > 0
    assert max(sizes) <= LEAST_BYTES
    kept = [line["queue_offset"] for line in lines_of(tmp_path) if line["kind"] == "trace"]
    assert kept == list(range(kept[0], 1_000))
    assert len(kept) > 200


async def test_a_line_larger_than_a_file_has_a_file_of_its_own(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, 0)
        put(files, 1, text="x" * (LEAST_BYTES // 4))
        put(files, 2)
    assert [line["queue_offset"] for line in lines_of(tmp_path) if line["kind"] == "trace"] == [0, 1, 2]
    assert len(paths(tmp_path)) == 3


async def test_reading_goes_on_where_it_was(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        assert files.place("broker-a", 0) is None
        files.move("begin", "broker-a", 0, None, 7)
        put(files, 7, 8)
        files.move("gap", "broker-b", 1, 2, 30)
    async with opened(tmp_path) as files:
        assert files.places == {"broker-a": {"0": 9}, "broker-b": {"1": 30}}
        put(files, 9)
    async with opened(tmp_path) as files:
        assert files.places == {"broker-a": {"0": 10}, "broker-b": {"1": 30}}
    assert len(paths(tmp_path)) == 3


@pytest.mark.parametrize("left", [1, 20, -1])
async def test_a_torn_last_line_is_read_again(tmp_path: Path, left: int) -> None:
    async with opened(tmp_path) as files:
        put(files, 0, 1)
    newest, torn = paths(tmp_path)[-1], trace(2)[:left]
    newest.write_bytes(newest.read_bytes() + torn)
    async with opened(tmp_path) as files:
        assert files.place("broker-a", 0) == 2
        put(files, 2)
    assert [line["queue_offset"] for line in lines_of(tmp_path) if line["kind"] == "trace"] == [0, 1, 2]


async def test_a_file_whose_first_line_is_torn_does_not_count(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, 0, 1)
    (tmp_path / "evidence-000002.jsonl").write_bytes(b'{"kind":"session","at_ms":12,"eve')
    async with opened(tmp_path) as files:
        assert files.place("broker-a", 0) == 2
    assert [path.name[:15] for path in paths(tmp_path)] == ["evidence-000001", "evidence-000002", "evidence-000003"]


async def test_gzipping_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as files:
        put(files, 0, 1)
    first = tmp_path / "evidence-000001.jsonl"
    (tmp_path / "evidence-000001.jsonl.gz.tmp").write_bytes(b"half")
    async with opened(tmp_path) as files:
        put(files, 2)
    assert not first.exists()
    assert [path.name for path in paths(tmp_path)] == ["evidence-000001.jsonl.gz", "evidence-000002.jsonl"]
    first.write_bytes(
        gzip.decompress((tmp_path / "evidence-000001.jsonl.gz").read_bytes())
    )  # killed before its removal
    async with opened(tmp_path) as files:
        assert files.place("broker-a", 0) == 3
    assert not first.exists()


async def test_one_folder_is_for_one_collector_and_one_trace_topic(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(ConfigError, match="another dejamq collect writes to"):
            async with opened(tmp_path):
                pass
    with pytest.raises(ConfigError, match="has the trace topic traces, not others"):
        async with opened(tmp_path, topic="others"):
            pass
    async with opened(tmp_path):  # what was refused holds nothing
        pass


async def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evidence-1.jsonl").write_text('{"kind":"session","event":3}\n')
    with pytest.raises(ConfigError, match="is no evidence of dejamq collect"):
        async with opened(tmp_path):
            pass
