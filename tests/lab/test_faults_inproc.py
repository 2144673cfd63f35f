"""The faults of scenarios, each in this process: what the cluster makes of it, and that it ends."""

from pathlib import Path
from typing import Any

import pytest
from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.faults import harm
from dejamq_proto.codes import ConfigError
from test_stage_inproc import Line, played, with_steps

START: list[Line] = [{"do": "start", "who": "c1"}, {"do": "start", "who": "p"}]
END: list[Line] = [{"do": "committed", "group": "g"}, {"do": "close", "who": "c1"}, {"do": "close", "who": "p"}]


def send(count: int, **more: Any) -> Line:
    return {"do": "send", "who": "p", "count": count, **more}


def handled(count: int) -> Line:
    return {"do": "handled", "who": "c1", "count": count}


async def test_a_full_disk_refuses_writes_and_serves_reads_until_it_has_room_again(tmp_path: Path) -> None:
    scenario = with_steps(
        "O1", {"do": "start", "who": "p"}, send(10),
        {"do": "disk", "who": "broker-a", "percent": 95}, send(5, outcome="error"),
        {"do": "start", "who": "c1"}, handled(10),
        {"do": "disk", "who": "broker-a", "percent": 0}, send(10), handled(20), *END,
    )  # fmt: skip
    left = await played(scenario, tmp_path)
    assert left.duplicates() == left.doubles() == set()
    stored = [key for line in left.lines("broker") if line["event"] == "APPEND" for key in line["unique_keys"]]
    assert len(stored) == len(set(stored)) == 20


async def test_a_broker_that_answers_with_an_error_is_asked_again(tmp_path: Path) -> None:
    armed = {"do": "failpoint", "who": "broker-a", "name": "rpc.QueryOffset.request", "terms": "3*error->off"}
    left = await played(with_steps("O1", armed, *START, send(20), handled(20), *END), tmp_path)
    assert left.duplicates() == set()
    refused = [line for line in left.lines("consumer") if line["event"] == "ASSIGN"]
    assert len(refused) > 1, "queues whose offset could not be read wait for another round"


async def test_an_isolated_name_server_stops_nobody_who_has_its_routes(tmp_path: Path) -> None:
    scenario = with_steps(
        "O1", *START, send(10), {"do": "isolate", "who": "namesrv-0", "mode": "silent"}, send(10), handled(20),
        {"do": "rejoin", "who": "namesrv-0"}, *END,
    )  # fmt: skip
    left = await played(scenario, tmp_path)
    assert left.duplicates() == set()
    kinds = [line["kind"] for line in left.lines("harness") if line["event"] == "FAULT"]
    assert kinds == ["isolate", "isolate", "rejoin", "rejoin"]


async def test_a_torn_log_loses_its_last_message_and_nothing_before(tmp_path: Path) -> None:
    """The log is the truth: queue entries behind its end go with it."""
    scenario = with_steps(
        "O1", {"do": "start", "who": "p"}, send(9, queue="broker-a:0", rate=1000), {"do": "kill", "who": "broker-a"},
        {"do": "damage", "who": "broker-a", "file": "commitlog/0*", "how": "tear"},
        {"do": "restart", "who": "broker-a"}, {"do": "start", "who": "c1"}, handled(8), *END,
    )  # fmt: skip
    left = await played(scenario, tmp_path)
    boots = [line for line in left.lines("broker") if line["event"] == "BOOT"]
    delivered = [line for line in left.lines("consumer") if line["event"] == "DELIVER"]
    offsets = [offset for line in delivered for offset in line["queue_offsets"]]
    assert len(boots) == 2
    assert sorted(offsets) == list(range(8))


def test_all_files_of_a_kind_are_deleted_also_where_a_killed_broker_has_written_none(tmp_path: Path) -> None:
    harm(tmp_path, "consumequeue/orders/*/*", "delete")
    file = tmp_path / "consumequeue" / "orders" / "0" / "00"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"entries")
    harm(tmp_path, "consumequeue/orders/*/*", "delete")
    assert not file.exists()
    with pytest.raises(ConfigError, match="there is no file"):
        harm(tmp_path, "consumequeue/orders/*/*", "flip")


async def test_what_is_not_there_cannot_be_damaged(tmp_path: Path) -> None:
    step = {"do": "damage", "who": "broker-a", "file": "commitlog/none", "how": "flip"}
    with pytest.raises(ClusterFailed, match="there is no file commitlog/none"):
        await played(with_steps("O1", step), tmp_path)
