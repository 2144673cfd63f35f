"""Writes go by a call and are read through the mapping: readers and the file see the same."""

import os
import random
from pathlib import Path

import pytest
from dejamq_broker.store.files.mapped_file import MappedFile

PAGE = 4096
SIZE = 8 * PAGE


def test_writes_of_all_sizes_are_read_back_and_are_in_the_file(tmp_path: Path, chance: random.Random) -> None:
    file, expected = MappedFile.create(tmp_path / "0", 0, SIZE), bytearray(SIZE)
    for _ in range(40):
        data = chance.randbytes(chance.choice([1, 500, PAGE - 1, PAGE, 2 * PAGE]))
        at = chance.randrange(SIZE - len(data))
        file.write(at, memoryview(data))
        expected[at : at + len(data)] = data
        assert file.read(at, len(data)) == data
    assert file.read(0, SIZE) == file.peek(0, SIZE) == bytes(expected)


@pytest.mark.parametrize("taken", [0, 4097, None])
def test_what_a_call_does_not_take_goes_through_the_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int | None
) -> None:
    real = os.pwrite

    def short(descriptor: int, data: memoryview, at: int) -> int:
        if taken is None:
            raise OSError(28, "no room")
        return real(descriptor, data[:taken], at)

    file = MappedFile.create(tmp_path / "0", 0, SIZE)
    monkeypatch.setattr(os, "pwrite", short)
    data = os.urandom(2 * PAGE)
    file.write(7, memoryview(data))
    assert file.read(7, len(data)) == data
