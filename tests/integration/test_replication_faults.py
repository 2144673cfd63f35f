"""Faults of links, processes and disks at random moments; ``prove_replication.py`` is the long form."""

from pathlib import Path

import pytest
from replication_faults import FAULTS, suffered
from replication_power import outlived

SEEDS = 5
EVERY = list(FAULTS)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_after_every_fault_a_slave_is_its_masters_copy(tmp_path: Path, seed: int) -> None:
    assert await suffered(tmp_path, seed, EVERY[seed::SEEDS]) > 0


@pytest.mark.timeout(120)
async def test_what_a_sync_master_answered_is_on_its_slave_when_its_machine_dies(tmp_path: Path) -> None:
    losses = 0
    for seed in range(2):
        losses += await outlived(tmp_path / str(seed), seed)
    assert losses > 2
