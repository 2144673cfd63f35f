"""Processes killed with SIGKILL while they append with SYNC_FLUSH: what they were promised is there."""

from pathlib import Path

import pytest
from fork_kill import killed_again_and_again

KILLS = 25


@pytest.mark.slow
@pytest.mark.process
def test_nothing_acknowledged_is_lost_or_doubled_however_often_the_process_is_killed(tmp_path: Path, seed: int) -> None:
    told = killed_again_and_again(tmp_path / "store", KILLS, seed, lambda told: None)
    assert told.kills == KILLS
    assert len(told.acknowledged) > KILLS
