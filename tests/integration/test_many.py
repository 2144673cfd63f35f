"""The short form of ``prove_many.py``: connections of each kind come, send heartbeats, and leave nothing behind."""

from pathlib import Path

import pytest
from many import many


@pytest.mark.process
async def test_clients_of_each_kind_join_with_their_groups_and_leave_no_descriptor_behind(tmp_path: Path) -> None:
    told = await many(tmp_path, {"remoting": 8, "v1": 4, "v2": 4}, topics=10, groups=4, processes=1)
    before, open_ = told.descriptors["restarted"], told.descriptors["heartbeats"]
    assert open_ >= before + 8 + 4 + 4 * 3
    assert told.descriptors["closed"] <= before + 2
    assert len(told.routes["gRPC"].times_ms) == len(told.routes["remoting"].times_ms) == 10
