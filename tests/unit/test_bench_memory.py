"""Memory that is the machine's own before anything is measured."""

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from dejamq_lab.bench import rounds
from dejamq_lab.bench.rounds import LEFT_BYTES, GivenMemory
from dejamq_lab.cluster.usage import free_bytes

MIB = 1 << 20


class Read(NamedTuple):
    begin: int
    end: int
    about: os.stat_result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many bytes are free."""
    return lambda size: monkeypatch.setattr(rounds, "free_bytes", lambda: size)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Read]:
    """What is read, in order, and what was known of the file then."""
    noted: list[Read] = []
    preadv = os.preadv

    def noting(file: int, rooms: list[bytearray], at: int) -> int:
        size = preadv(file, rooms, at)
        noted.append(Read(at, at + size, os.fstat(file)))
        return size

    monkeypatch.setattr(os, "preadv", noting)
    return noted


@pytest.mark.usefixtures("folder")
async def test_every_page_of_what_is_filled_was_read(free: Callable[[int], None], reads: list[Read]) -> None:
    with GivenMemory() as memory:
        free(LEFT_BYTES + 70 * MIB)
        assert await memory.fill() == 70 * MIB
        free(LEFT_BYTES + 3 * MIB)
        assert await memory.fill() == 3 * MIB
    assert reads[0].begin == 0
    assert reads[-1].end == memory.size == 73 * MIB
    assert all(one.end == other.begin for one, other in itertools.pairwise(reads))


@pytest.mark.usefixtures("folder")
async def test_all_that_is_free_is_filled_but_a_rest(free: Callable[[int], None]) -> None:
    free(LEFT_BYTES + 5 * MIB)
    with GivenMemory() as memory:
        assert await memory.fill() == 5 * MIB


@pytest.mark.usefixtures("folder")
async def test_where_less_than_the_rest_is_free_nothing_is_filled(free: Callable[[int], None]) -> None:
    free(0)
    with GivenMemory() as memory:
        assert await memory.fill() == 0


async def test_it_takes_no_room_on_the_disk_and_leaves_no_file(
    folder: Path, free: Callable[[int], None], reads: list[Read]
) -> None:
    free(LEFT_BYTES + 8 * MIB)
    with GivenMemory() as memory:
        await memory.fill()
    assert {(one.about.st_size, one.about.st_blocks) for one in reads} == {(8 * MIB, 0)}
    assert not os.listdir(folder)


def test_how_much_is_free_is_less_than_there_is() -> None:
    assert 0 < free_bytes() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
