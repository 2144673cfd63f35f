"""Power losses: what was not synced is dropped, torn or garbled, at every step that touches the disk."""

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from disk_model import Disk
from power_loss import lineage
from power_loss_threads import threaded_life
from store_making import bodies_of, fill_queue, log_files, open_small, overwrite, settle
from store_making import run_of as of_store

POINTS = 50


@pytest.mark.slow
def test_a_store_comes_back_from_power_losses_at_random_steps(tmp_path: Path, seed: int) -> None:
    seen, number = Counter[str](), seed
    while seen.total() < POINTS or number < seed + 2:
        seen += lineage(number, tmp_path / str(number), lives=2)
        number += 1


@pytest.mark.slow
def test_a_store_comes_back_from_power_losses_while_its_threads_run(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(2):
        seen += threaded_life(seed, tmp_path / str(seed))
    assert seen.total() > 10


def test_what_was_read_before_it_was_flushed_may_be_lost_and_its_queue_offset_is_given_out_again(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk").mkdir()
    world = Disk(tmp_path / "disk")
    with world.watching():
        store = open_small(world.root / "store")
        flushed = fill_queue(store, 5)
        store.durable(store.log_max).result(timeout=10)
        appended = store.append_run(of_store([("T", 0, b"read, then lost")]))
        settle(store)
        assert (bodies_of(store)[5:], appended.queue_offsets.tolist()) == ([b"read, then lost"], [5])
        wrecks = left(world, tmp_path)
        store.close()
    survivors = [open_small(wreck / "store") for wreck in wrecks]
    assert {tuple(bodies_of(each)) for each in survivors} == {tuple(flushed), (*flushed, b"read, then lost")}
    for each in survivors:
        queue_offset = 5 + (len(bodies_of(each)) > 5)
        assert each.append_run(of_store([("T", 0, b"new")])).queue_offsets.tolist() == [queue_offset]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "disk").mkdir()
    return Disk(tmp_path / "disk")


def left(disk: Disk, tmp_path: Path) -> list[Path]:
    """Twenty things that a power loss could leave."""
    wrecks = [tmp_path / f"wreck-{seed}" for seed in range(20)]
    for seed, wreck in enumerate(wrecks):
        disk.wreck(wreck, random.Random(seed))
    return wrecks


def test_the_model_keeps_what_was_synced_with_its_name(disk: Disk, tmp_path: Path) -> None:
    with disk.watching():
        (disk.root / "file").write_bytes(b"kept")
        for path in (disk.root / "file", disk.root):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        wrecks = left(disk, tmp_path)
    assert {(wreck / "file").read_bytes() for wreck in wrecks} == {b"kept"}


def test_the_model_loses_names_that_nobody_synced(disk: Disk, tmp_path: Path) -> None:
    with disk.watching():
        descriptor = os.open(disk.root / "file", os.O_RDWR | os.O_CREAT)
        os.pwrite(descriptor, b"kept", 0)
        os.fdatasync(descriptor)
        os.close(descriptor)
        wrecks = left(disk, tmp_path)
    assert {(wreck / "file").exists() for wreck in wrecks} == {False, True}
    assert {(wreck / "file").read_bytes() for wreck in wrecks if (wreck / "file").exists()} == {b"kept"}


def test_a_log_whose_earlier_files_expired_goes_on_where_it_began_when_the_rest_is_lost(tmp_path: Path) -> None:
    store = open_small(tmp_path / "live")
    fill_queue(store, 400)
    store.durable(store.log_max).result(timeout=10)
    settle(store)
    store.close()
    crashed = tmp_path / "live"
    log_files(crashed)[0].unlink()
    overwrite(log_files(crashed)[0], 0, bytes(65_536))
    (crashed / "abort").touch()
    for _ in range(2):
        again = open_small(crashed)
        assert (again.log_min, again.log_max, again.min_offset("T", 0)) == (65_536, 65_536, again.max_offset("T", 0))
        again.close()
    again = open_small(crashed)
    assert again.append_run(of_store([("T", 0, b"x")])).log_offsets.tolist() == [65_536]
    settle(again)
    assert bodies_of(again) == [b"x"]
