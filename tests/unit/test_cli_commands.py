"""The commands as a whole: what they print in both shapes and which exit status they end with; servers are stood in."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dejamq import Message
from dejamq_cli.__main__ import main
from dejamq_cli.send import _bodies, _paced
from dejamq_lab import rpc_control, standing
from dejamq_lab.rpc_control import BrokerInfo, QueueInfo
from dejamq_lab.standing import Member, Standing
from dejamq_proto.codes import BrokerUnavailable, Code, DejamqError, RouteNotFound

A = BrokerInfo("lab", "broker-a", {0: "h:1", 1: "h:2"})
B = BrokerInfo("lab", "broker-b", {0: "h:3"})
SLAVE_ONLY = BrokerInfo("lab", "broker-c", {1: "h:4"})
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
    answers: dict[str, Any] = {"brokers": [A, B], "topics": [], "route": RouteNotFound("no route"), "healthy": True}
    answers["created"] = []

    def stand_in(name: str) -> Callable[..., Any]:
        async def ask(address: str, *_: object) -> Any:
            answer = answers[name](address) if callable(answers[name]) else answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    async def create_topic(broker: str, topic: str, queues: int) -> None:
        answers["created"].append((broker, topic, queues))

    for name in ("brokers", "topics", "route", "healthy"):
        monkeypatch.setattr(rpc_control, name, stand_in(name))
    monkeypatch.setattr(rpc_control, "create_topic", create_topic)
    return answers


def test_topics_are_listed_as_json_for_programs(run: Run, server: dict[str, Any]) -> None:
    server["topics"] = ["a", "b"]
    status, out, _ = run("topic", "list", "-o", "json")
    assert status == 0
    assert json.loads(out) == [{"topic": "a"}, {"topic": "b"}]


def test_no_topics_are_said_in_words_and_are_no_failure(run: Run, server: dict[str, Any]) -> None:
    assert run("topic", "list") == (0, "no topics\n", "")


def test_a_route_shows_queues_and_addresses(run: Run, server: dict[str, Any]) -> None:
    server["route"] = ([QueueInfo("broker-a", 4, 2, 6)], [A])
    status, out, _ = run("topic", "route", "orders", "-o", "json")
    assert status == 0
    assert json.loads(out) == [
        {"broker": "broker-a", "addresses": ["0=h:1", "1=h:2"], "read_queues": 4, "write_queues": 2, "perm": 6}
    ]


def test_a_topic_that_nobody_has_is_one_line_and_status_1(run: Run, server: dict[str, Any]) -> None:
    assert run("topic", "route", "orders") == (1, "", "dejamq: no route\n")


def test_a_topic_is_made_at_every_master(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = [A, B, SLAVE_ONLY]
    status, out, _ = run("topic", "create", "orders", "--queues", "3", "-o", "json")
    assert status == 0
    assert server["created"] == [("h:1", "orders", 3), ("h:3", "orders", 3)]
    assert [row["broker"] for row in json.loads(out)] == ["broker-a", "broker-b"]


def test_a_topic_is_made_only_where_it_is_wanted(run: Run, server: dict[str, Any]) -> None:
    run("topic", "create", "orders", "--broker", "broker-b")
    assert server["created"] == [("h:3", "orders", 8)]


def test_a_broker_that_does_not_exist_is_bad_use_and_nothing_is_made(run: Run, server: dict[str, Any]) -> None:
    status, _, error = run("topic", "create", "orders", "--broker", "broker-z", "--broker", "broker-a")
    assert status == 2
    assert "no broker named broker-z; there are broker-a, broker-b" in error
    assert server["created"] == []


def test_without_any_master_no_topic_can_be_made(run: Run, server: dict[str, Any]) -> None:
    server["brokers"] = [SLAVE_ONLY]
    status, _, error = run("topic", "create", "orders")
    assert status == 1
    assert "no broker with a master" in error


@pytest.mark.parametrize("topic", ["SCHEDULE_TOPIC_XXXX", "a b", ""])
def test_a_topic_that_cannot_be_is_refused_before_anybody_is_asked(
    run: Run, server: dict[str, Any], topic: str
) -> None:
    server["brokers"] = AssertionError("asked all the same")
    assert run("topic", "create", topic)[0] == 2


def test_registered_brokers_are_listed_with_every_replica(run: Run, server: dict[str, Any]) -> None:
    status, out, _ = run("cluster", "list", "-o", "json")
    assert status == 0
    assert [(row["broker"], row["id"], row["address"]) for row in json.loads(out)] == [
        ("broker-a", 0, "h:1"), ("broker-a", 1, "h:2"), ("broker-b", 0, "h:3"),
    ]  # fmt: skip


def test_health_is_0_when_everybody_serves(run: Run, server: dict[str, Any]) -> None:
    status, out, _ = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert status == 0
    assert [(row["role"], row["address"], row["healthy"]) for row in json.loads(out)] == [
        ("namesrv", "n:1", True), ("broker", "h:1", True), ("broker", "h:2", True), ("broker", "h:3", True),
    ]  # fmt: skip


def test_health_is_1_when_one_broker_does_not_serve(run: Run, server: dict[str, Any]) -> None:
    server["healthy"] = lambda address: address != "h:3"
    status, out, _ = run("cluster", "health", "--namesrv", "n:1", "-o", "json")
    assert status == 1
    assert [row["address"] for row in json.loads(out) if not row["healthy"]] == ["h:3"]


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
    assert [row["address"] for row in json.loads(out)] == ["n:1", "h:3", "n:2"]


def test_the_next_name_server_is_asked_when_one_is_away(run: Run, server: dict[str, Any]) -> None:
    server["topics"] = lambda address: BrokerUnavailable("gone") if address == "n:1" else ["a"]
    assert json.loads(run("topic", "list", "--namesrv", "n:1;n:2", "-o", "json")[1]) == [{"topic": "a"}]


def test_when_no_name_server_answers_nothing_is_known_and_the_line_says_what_to_do(
    run: Run, server: dict[str, Any]
) -> None:
    server["topics"] = BrokerUnavailable("n: connection refused")
    status, out, error = run("topic", "list", "--namesrv", "n:1;n:2")
    assert (status, out) == (3, "")
    assert "n:1;n:2 (connection refused)" in error
    assert "dejamq cluster up" in error
    assert error.count("\n") == 1


def test_a_server_of_another_kind_counts_as_no_answer(run: Run, server: dict[str, Any]) -> None:
    server["topics"] = DejamqError("speaks gRPC, no dejamq", code=Code.REQUEST_CODE_NOT_SUPPORTED)
    assert run("topic", "list")[0] == 3


def test_an_answer_that_is_a_refusal_is_believed(run: Run, server: dict[str, Any]) -> None:
    asked: list[str] = []

    def refuse(address: str) -> DejamqError:
        asked.append(address)
        return DejamqError("refused", code=Code.SYSTEM_ERROR)

    server["topics"] = refuse
    assert run("topic", "list", "--namesrv", "n:1;n:2")[0] == 1
    assert asked == ["n:1"]


def test_an_address_that_is_none_is_bad_use(run: Run, server: dict[str, Any]) -> None:
    status, _, error = run("topic", "list", "--namesrv", "nowhere")
    assert status == 2
    assert "host:port" in error


# --- a cluster in a folder


def member(name: str, role: str = "broker") -> Member:
    return Member(name, role, 4711, "h:1", 1)


@pytest.mark.parametrize(
    ("state", "status", "healthy"), [("running", 0, True), ("unhealthy", 1, False), ("stopped", 1, False)]
)
def test_status_is_0_only_while_all_run_and_are_healthy(
    run: Run, monkeypatch: pytest.MonkeyPatch, state: str, status: int, healthy: bool
) -> None:
    members = (member("namesrv-0", "namesrv"), member("broker-a"))

    async def states(_: Standing) -> list[tuple[Member, str]]:
        return [(members[0], "running"), (members[1], state)]

    monkeypatch.setattr(standing, "read_state", lambda directory: Standing(members))
    monkeypatch.setattr(standing, "states", states)
    ended, out, _ = run("cluster", "status", "-o", "json")
    told = json.loads(out)
    assert (ended, told["healthy"], told["namesrv"]) == (status, healthy, "h:1")
    assert [row["state"] for row in told["processes"]] == ["running", state]


def test_a_cluster_without_processes_is_not_healthy(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "read_state", lambda directory: Standing())
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


def test_a_body_from_the_command_line_is_one_message() -> None:
    assert _bodies("a\nb", None, lines=False) == [b"a\nb"]


def test_every_line_may_be_a_message_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "bodies"
    file.write_bytes(b"one\ntwo\r\nthree")
    assert _bodies(None, file, lines=True) == [b"one", b"two", b"three"]


def test_a_rate_puts_a_pause_before_all_but_the_first() -> None:
    messages = [Message("t", b"x") for _ in range(3)]
    assert [pause for _, pause in _paced(messages, 4)] == [0, 0.25, 0.25]
    assert [pause for _, pause in _paced(messages, 0)] == [0, 0, 0]


@pytest.mark.parametrize("arguments", [("send", "orders"), ("send", "orders", "body", "--file", "x")])
def test_exactly_one_source_of_the_body_is_wanted(run: Run, arguments: tuple[str, ...]) -> None:
    status, _, error = run(*arguments)
    assert status == 2
    assert "BODY" in error


def test_a_file_that_is_not_there_is_one_line(run: Run) -> None:
    status, _, error = run("send", "orders", "--file", "/nowhere/body")
    assert (status, error) == (1, "dejamq: /nowhere/body: No such file or directory\n")
