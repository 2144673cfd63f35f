import os
import socket
from pathlib import Path

import pytest
from dejamq_lab import standing
from dejamq_lab.standing import Member, Standing, free_address, process_born, purge, read_state
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
    assert Member("n", "namesrv", me, "a:1", process_born(me)).runs
    assert not Member("n", "namesrv", me, "a:1", process_born(me) + 1).runs
    assert not Member("n", "namesrv", 0, "a:1", 0).runs


def test_purge_removes_what_the_cluster_made_and_nothing_else(tmp_path: Path) -> None:
    for name in ("journal", "namesrv-0", "broker-a", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "cluster.json").write_text("{}")
    members = (Member("namesrv-0", "namesrv", 0, "a:1", 0), Member("broker-a", "broker", 0, "a:2", 0))
    purge(tmp_path, Standing(members))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_folder_without_a_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dejamq cluster up"):
        read_state(tmp_path)


async def test_a_slave_says_how_far_behind_it_is_while_it_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "a:1": {"slaves": "2"},
        "a:2": {"following": "true", "lagBytes": "70", "lagMs": "3"},
        "a:3": {"following": "false", "followingTrouble": "no room", "lagBytes": "0", "lagMs": "0"},
    }

    async def runtime(address: str) -> dict[str, str]:
        return told[address]

    monkeypatch.setattr("dejamq_lab.rpc_control.runtime", runtime)
    me, names = os.getpid(), ("broker-a", "broker-a-s1", "broker-a-s2")
    members = tuple(Member(name, "broker", me, f"a:{number}", process_born(me)) for number, name in enumerate(names, 1))
    assert await standing.replicas(Standing(members)) == {
        "broker-a": standing.Replica("master"),
        "broker-a-s1": standing.Replica("slave", 70, 3),
        "broker-a-s2": standing.Replica("slave", trouble="no room"),
    }
