"""The short form of ``prove_scale.py``: everything answers, and memory is in proportion. No times are judged."""

from pathlib import Path

import pytest
from scale import scaled


@pytest.mark.process
async def test_a_broker_with_many_queues_and_groups_answers_for_all_of_them_in_little_memory(tmp_path: Path) -> None:
    told = await scaled(tmp_path, topics=50, groups=20, messages=20)
    assert set(told.answers) >= {"route", "lag of a group"}
    assert len(told.answers["route"].times_ms) == 50
    assert len(told.answers["lag of a group"].times_ms) == 20
    assert told.resident_mib < 200
    assert told.own_mib < 120
    assert told.descriptors < 64
