"""A dump of a store that a broker is writing to and deleting from: what is under way is no damage."""

from pathlib import Path

import pytest
from dejamq_broker.store.dump import dump
from dejamq_broker.store.files.paths import StorePaths
from dejamq_broker.store.offline.at_rest import DataFiles, commit_log
from store_making import fill_queue, log_files, open_small, overwrite, settle

SIZE = 192
"""Of each record."""


def summary_of(directory: Path) -> tuple[int, list[str]]:
    """How many records there are, and what is wrong."""
    *_, last = dump(StorePaths(directory))
    return last["summary"]["records"], [damage["reason"] for damage in last["summary"]["damages"]]


def test_files_that_expire_while_they_are_listed_leave_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 341 * 4)
    store.close()
    first, second, third, *_ = files = log_files(tmp_path)
    stat, seen = Path.stat, list[Path]()

    def slow(path: Path, *, follow_symlinks: bool = True) -> object:
        if path in files:
            seen.append(path)
        if len(seen) == 2:
            first.unlink(missing_ok=True)
            second.unlink(missing_ok=True)
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", slow)
    found = commit_log(StorePaths(tmp_path))
    assert list(found.troubles()) == []
    assert min(found.lengths) == int(third.name)


def test_records_that_were_half_written_when_they_were_read_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 10)
    settle(store)
    read, at = DataFiles.read, 4 * SIZE
    reads: list[int] = []

    def torn_at_first(files: DataFiles, offset: int, size: int) -> bytes:
        data = bytearray(read(files, offset, size))
        if not reads and len(data) > at + SIZE:
            reads.append(offset)
            data[at + 20 : at + SIZE] = bytes(SIZE - 20)
        return bytes(data)

    monkeypatch.setattr(DataFiles, "read", torn_at_first)
    assert summary_of(tmp_path) == (10, [])
    assert reads


def test_a_half_written_record_at_the_end_is_damage_only_when_nobody_writes(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    fill_queue(store, 10)
    settle(store)
    overwrite(log_files(tmp_path)[0], 9 * SIZE + 100, bytes(SIZE - 100))
    assert summary_of(tmp_path) == (9, [])
    store.inspect().lock.release()
    records, damages = summary_of(tmp_path)
    assert (records, len(damages)) == (9, 1)
