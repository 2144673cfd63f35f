import os
import socket
from pathlib import Path

import pytest
from dejamq_lab.cluster import background
from dejamq_lab.cluster.background import RunningServer, StandingCluster, free_address, process_born, purge, read_state
from dejamq_proto.codes import ConfigError


def test_a_free_port_is_taken_and_a_used_one_is_not() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert free_address(port) == "127.0.0.1:0"
    assert free_address(port) == f"127.0.0.1:{port}"


def test_a_process_is_known_by_its_birth_not_by_its_id_alone() -> None:
    me = os.getpid()
    assert RunningServer("n", "namesrv", me, "a:1", process_born(me)).runs
    assert not RunningServer("n", "namesrv", me, "a:1", process_born(me) + 1).runs
    assert not RunningServer("n", "namesrv", 0, "a:1", 0).runs


def test_purge_removes_what_the_cluster_made_and_nothing_else(tmp_path: Path) -> None:
    for name in ("journal", "namesrv-0", "broker-a", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.json").write_text("{}")
    members = (RunningServer("namesrv-0", "namesrv", 0, "a:1", 0), RunningServer("broker-a", "broker", 0, "a:2", 0))
    purge(tmp_path, StandingCluster(members))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_without_a_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dejamq cluster up"):
        read_state(tmp_path)


def test_a_command_that_is_told_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--dir '[^']+/my \$HOME'$"):
        read_state(tmp_path / "my $HOME")


Told = dict[str, dict[str, str]]


async def replicas(monkeypatch: pytest.MonkeyPatch, told: Told) -> dict[str, background.ReplicaRole]:
    """Of brokers that run as this process, by what each says of itself."""

    async def runtime(address: str) -> dict[str, str]:
        return told[address]

    monkeypatch.setattr("dejamq_lab.cluster.rpc_control.runtime", runtime)
    me = os.getpid()
    return await background.replicas(
        StandingCluster(tuple(RunningServer(name, "broker", me, name, process_born(me)) for name in told))
    )


async def test_a_slave_says_how_far_behind_it_is_while_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "broker-a": {"brokerRole": "SYNC_MASTER"},
        "broker-a-s1": {"brokerRole": "SLAVE", "following": "true", "lagBytes": "70", "lagMs": "3"},
    }
    assert await replicas(monkeypatch, told) == {
        "broker-a": background.ReplicaRole("SYNC_MASTER"),
        "broker-a-s1": background.ReplicaRole("SLAVE", 70, 3),
    }


@pytest.mark.parametrize(("end", "behind"), [("900", 100), ("1000", 0), ("1100", None)])
async def test_how_far_behind_a_slave_is_that_does_not_follow_is_told_by_the_ends_of_the_logs(
    monkeypatch: pytest.MonkeyPatch, end: str, behind: int | None
) -> None:
    """One that is ahead is not behind by a number: its log is another one from some place on."""
    told = {
        "broker-a": {"brokerRole": "ASYNC_MASTER", "commitLogMaxOffset": "1000"},
        "broker-a-s1": {"following": "false", "followingTrouble": "no room", "lagBytes": "0", "lagMs": "0"},
    }
    told["broker-a-s1"]["commitLogMaxOffset"] = end
    found = await replicas(monkeypatch, told)
    assert found["broker-a-s1"] == background.ReplicaRole("SLAVE", behind, trouble="no room")


async def test_nobody_knows_how_far_behind_a_slave_is_while_one_of_the_two_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: Told = {"broker-a": {}, "broker-a-s1": {"commitLogMaxOffset": "9", "followingTrouble": "gone"}}
    assert await replicas(monkeypatch, told) == {
        "broker-a": background.ReplicaRole(""),
        "broker-a-s1": background.ReplicaRole("SLAVE", trouble="gone"),
    }
    told = {"broker-a": {"commitLogMaxOffset": "9"}, "broker-a-s1": {}}
    found = await replicas(monkeypatch, told)
    assert found["broker-a-s1"] == background.ReplicaRole("SLAVE", trouble="it does not answer")
