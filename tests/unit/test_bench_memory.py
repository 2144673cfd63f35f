"""Memory that is the machine's own before anything is measured."""

import itertools
import os
import tempfile
from pathlib import Path

import pytest
from dejamq_lab.bench import given_memory
from dejamq_lab.bench.given_memory import GivenMemory, free_bytes

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_every_page_of_what_is_filled_was_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[int, int]] = []
    preadv = os.preadv

    def noted(file: int, rooms: list[bytearray], at: int) -> int:
        size = preadv(file, rooms, at)
        read.append((at, at + size))
        return size

    monkeypatch.setattr(os, "preadv", noted)
    with GivenMemory() as memory:
        assert await memory.fill(70 * MIB) == 70 * MIB
        assert await memory.fill(3 * MIB) == 3 * MIB
    assert read[0][0] == 0
    assert read[-1][1] == memory.size == 73 * MIB
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(read))


async def test_without_a_size_all_that_is_free_is_filled_but_a_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_memory, "free_bytes", lambda: given_memory.LEFT_BYTES + 5 * MIB)
    with GivenMemory() as memory:
        assert await memory.fill() == 5 * MIB


async def test_where_less_than_the_rest_is_free_nothing_is_filled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given_memory, "free_bytes", lambda: 0)
    with GivenMemory() as memory:
        assert await memory.fill() == 0


async def test_it_takes_no_room_on_the_disk_and_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about: list[os.stat_result] = []
    preadv = os.preadv

    def noted(file: int, rooms: list[bytearray], at: int) -> int:
        about.append(os.fstat(file))
        return preadv(file, rooms, at)

    monkeypatch.setattr(os, "preadv", noted)
    with GivenMemory() as memory:
        await memory.fill(8 * MIB)
    assert {(one.st_size, one.st_blocks) for one in about} == {(8 * MIB, 0)}
    assert not os.listdir(folder)


def test_how_much_is_free_is_less_than_there_is() -> None:
    assert 0 < free_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
