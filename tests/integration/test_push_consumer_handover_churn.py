"""Eight consumers join and leave over sixteen queues: with and without graceful hand-over.

A short form of ``prove_churn.py``.
"""

from pathlib import Path

import pytest
from churn import churned

STEPS = 16


@pytest.mark.parametrize("ordered", [False, True])
async def test_with_graceful_hand_over_nothing_is_lost_and_nothing_comes_twice(
    tmp_path: Path, ordered: bool, seed: int
) -> None:
    told = await churned(tmp_path, STEPS, seed, graceful=True, ordered=ordered)
    told.check_graceful()


async def test_without_it_nothing_is_lost_and_every_duplicate_is_found_with_both_deliveries(
    tmp_path: Path, seed: int
) -> None:
    told = await churned(tmp_path, STEPS, seed, graceful=False)
    told.check_told()
