"""The commands as a whole: what they print in both shapes and which exit status they end with; servers are stood in."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq_cli.command_line import main
from dejamq_lab.cluster import background, rpc_control
from dejamq_lab.cluster.background import ReplicaRole, RunningServer, StandingCluster
from dejamq_lab.cluster.rpc_control import BrokerAddresses
from dejamq_proto.codes import BrokerUnavailable

A = BrokerAddresses("lab", "broker-a", {0: "h:1", 1: "h:2"})
B = BrokerAddresses("lab", "broker-b", {0: "h:3"})
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """``dejamq`` with these arguments: exit status, standard output, standard error."""

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dejamq", *arguments])
        status = main()
        return status, *capsys.readouterr()

    return called


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the name server answers: a value, or an error to raise, by question."""
    answers: dict[str, Any] = {"brokers": [A, B], "healthy": True, "follows": True}

    def stand_in(name: str) -> Callable[..., Any]:
        async def ask(address: str, *_: object) -> Any:
            answer = answers[name](address) if callable(answers[name]) else answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    for name in answers:
        monkeypatch.setattr(rpc_control, name, stand_in(name))
    return answers


def test_health_is_0_when_everybody_serves(run: Run, server: dict[str, Any]) -> None:
    status, out, _ = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert status == 0
    assert [(row["role"], row["address"], row["healthy"]) for row in json.loads(out)] == [
        ("namesrv", "n:1", True), ("broker", "h:1", True), ("broker", "h:2", True), ("broker", "h:3", True),
    ]  # fmt: skip


def test_health_is_1_when_one_master_does_not_serve(run: Run, server: dict[str, Any]) -> None:
    server["healthy"] = lambda address: address != "h:3"
    status, out, _ = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert status == 1
    assert [row["address"] for row in json.loads(out) if not row["healthy"]] == ["h:3"]


def test_health_is_1_while_name_servers_know_fewer_masters_than_there_should_be(
    run: Run, server: dict[str, Any]
) -> None:
    assert run("cluster", "health", "--namesrv", "n:1", "--brokers", "2")[0] == 0
    status, _, error = run("cluster", "health", "--namesrv", "n:1", "--brokers", "3")
    assert (status, error) == (1, "dejamq: name servers know 2 of 3 masters\n")


def test_health_is_0_and_says_so_while_one_of_two_name_servers_is_away(run: Run, server: dict[str, Any]) -> None:
    server["healthy"] = lambda address: address != "n:2"
    status, _, error = run("cluster", "health", "--namesrv", "n:1;n:2")
    assert (status, error) == (0, "dejamq: name servers that do not serve: n:2\n")
    assert run("cluster", "health", "--strict", "--namesrv", "n:1;n:2")[0] == 1


def test_health_is_1_while_a_broker_has_no_master(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = [A, BrokerAddresses("lab", "broker-c", {1: "h:4"})]
    status, out, error = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert (status, error) == (1, "dejamq: brokers without a master: broker-c\n")
    assert [(row["name"], row["address"], row["healthy"]) for row in json.loads(out)[3:]] == [
        ("broker-c", "", False), ("broker-c", "h:4", True),
    ]  # fmt: skip


def test_a_master_that_one_of_two_name_servers_knows_is_there(run: Run, server: dict[str, Any]) -> None:
    half = BrokerAddresses("lab", "broker-a", {1: "h:2"})
    server["brokers"] = lambda address: [A] if address == "n:1" else [half]
    assert run("cluster", "health", "--namesrv", "n:1;n:2")[0] == 0


@pytest.mark.parametrize("trouble", ["healthy", "follows"])
def test_health_is_0_and_names_a_slave_that_clients_can_do_without(
    run: Run, server: dict[str, Any], trouble: str
) -> None:
    server["follows"] = False
    server["healthy"] = lambda address: trouble != "healthy" or address != "h:2"
    status, out, error = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert (status, error) == (0, "dejamq: slaves that do not follow their masters: broker-a h:2\n")
    rows = [(row["id"], row["healthy"], row["following"]) for row in json.loads(out)]
    assert rows == [(None, True, None), (0, True, None), (1, trouble != "healthy", False), (0, True, None)]
    assert run("cluster", "health", "--strict", "--namesrv", "n:1")[0] == 1


def test_health_is_1_while_no_broker_is_there(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = []
    assert run("cluster", "health", "--namesrv", "n:1")[0] == 1


def test_a_name_server_that_serves_but_does_not_answer_is_not_healthy(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = BrokerUnavailable("gone")
    status, out, _ = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert (status, [row["healthy"] for row in json.loads(out)]) == (1, [False])


def test_a_broker_that_two_name_servers_know_is_shown_once(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = [B]
    _, out, _ = run("cluster", "health", "--namesrv", "n:1;n:2", "-o", "json")
    assert [row["address"] for row in json.loads(out)] == ["n:1", "n:2", "h:3"]


# --- a cluster in a folder


def member(name: str, role: str = "broker") -> RunningServer:
    return RunningServer(name, role, 4711, "h:1", 1)


@pytest.mark.parametrize(
    ("state", "status", "healthy"), [("running", 0, True), ("unhealthy", 1, False), ("stopped", 1, False)]
)
def test_status_is_0_only_while_all_run_and_are_healthy(
    run: Run, monkeypatch: pytest.MonkeyPatch, state: str, status: int, healthy: bool
) -> None:
    members = (member("namesrv-0", "namesrv"), member("broker-a"))

    async def states(_: StandingCluster) -> list[tuple[RunningServer, str]]:
        return [(members[0], "running"), (members[1], state)]

    monkeypatch.setattr(background, "read_state", lambda directory: StandingCluster(members))
    monkeypatch.setattr(background, "states", states)
    ended, out, _ = run("cluster", "status", "-o", "json")
    told = json.loads(out)
    assert (ended, told["healthy"], told["namesrv"]) == (status, healthy, "h:1")
    assert [row["state"] for row in told["processes"]] == ["running", state]


def test_status_tells_roles_and_lags_and_is_1_while_a_slave_does_not_follow(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("broker-a", "broker-a-s1", "broker-a-s2")
    replicas = {
        "broker-a": ReplicaRole("SYNC_MASTER"),
        "broker-a-s1": ReplicaRole("SLAVE", 70, 3),
        "broker-a-s2": ReplicaRole("SLAVE", 900, trouble="no room for a log file"),
    }

    async def states(_: StandingCluster) -> list[tuple[RunningServer, str]]:
        return [(member(name), "running") for name in names]

    async def told(_: StandingCluster) -> dict[str, ReplicaRole]:
        return replicas

    monkeypatch.setattr(background, "read_state", lambda directory: StandingCluster())
    monkeypatch.setattr(background, "states", states)
    monkeypatch.setattr(background, "replicas", told)
    status, out, error = run("cluster", "status", "-o", "json")
    assert (status, error) == (1, "dejamq: broker-a-s2 does not follow its master: no room for a log file\n")
    found = json.loads(out)
    assert not found["healthy"]
    assert [(row["broker_role"], row["lag_bytes"], row["lag_ms"]) for row in found["processes"]] == [
        ("SYNC_MASTER", None, None), ("SLAVE", 70, 3), ("SLAVE", 900, None),
    ]  # fmt: skip
    del replicas["broker-a-s2"]
    assert run("cluster", "status")[::2] == (0, "")


def test_a_cluster_without_processes_is_not_healthy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "read_state", lambda directory: StandingCluster())
    assert run("cluster", "status")[:2] == (1, "no processes\n")


def test_a_folder_without_a_cluster_is_bad_use(run: Run, tmp_path: Path) -> None:
    for command in ("status", "down"):
        status, _, error = run("cluster", command, "--dir", str(tmp_path))
        assert status == 2
        assert "dejamq cluster up" in error


def test_a_setting_without_an_equals_sign_starts_nothing(run: Run, tmp_path: Path) -> None:
    status, _, error = run("cluster", "up", "--dir", str(tmp_path), "--set", "timeScale")
    assert status == 2
    assert "KEY=VALUE" in error
    assert list(tmp_path.iterdir()) == []


# --- what is sent


@pytest.mark.parametrize("arguments", [("send", "orders"), ("send", "orders", "body", "--file", "x")])
def test_exactly_one_source_of_the_body_is_wanted(run: Run, arguments: tuple[str, ...]) -> None:
    status, _, error = run(*arguments)
    assert status == 2
    assert "BODY" in error


def test_a_file_that_is_not_there_is_one_line(run: Run) -> None:
    status, _, error = run("send", "orders", "--file", "/nowhere/body")
    assert (status, error) == (2, "dejamq: /nowhere/body: No such file or directory\n")
