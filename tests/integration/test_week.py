"""The short form of ``prove_week.py``: the night in which the clock of the machine goes back."""

from datetime import datetime
from pathlib import Path

import pytest
from week import lived


@pytest.mark.slow
async def test_a_broker_keeps_and_lets_go_what_it_must_over_the_night_in_which_clocks_go_back(tmp_path: Path) -> None:
    told = await lived(tmp_path, datetime(2026, 10, 24, 20), 0.5, reserved_hours=2, restart_hours=7)
    assert told.faults == []
    assert told.zones == {"CET", "CEST"}
    assert told.looks == 1
    assert told.gone > 50
    assert told.restarts == 2
    assert told.delivered > 10
