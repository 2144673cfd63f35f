"""Scenarios on a real RocketMQ without one: what the command refuses, what a link loses, and who judges the audit."""

import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import pytest
from cli_runner import run_here
from dejamq_lab.machines import jars
from dejamq_lab.rocketmq.links import ANSWER, PULL, SEND, SEND_BACK, Links, machine_of
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.scenario import recorded_name
from dejamq_lab.rocketmq.scenarios import NOT_SHOWN, SCENARIOS, chosen
from dejamq_lab.rocketmq.servers import LINKED, JavaServer
from dejamq_lab.rocketmq.truth import Truth, problems
from dejamq_lab.scenario.script.not_supported import all_causes, cause_of

DEADLINE_S = 20.0


def played(*arguments: str) -> str:
    """What the command says went wrong, in one line."""
    ran = run_here("lab", "run", *arguments)
    assert ran.status != 0
    return ran.one_line()


def test_a_client_that_is_not_known_is_refused_with_those_that_are() -> None:
    said = played("O1", "--cluster", "rocketmq", "--client", "python")
    assert all(client in said for client in ClientProgram)


def test_a_scenario_that_a_real_one_cannot_show_is_refused_with_why() -> None:
    said = played("O16", "--cluster", "rocketmq")
    assert "a real RocketMQ cannot show O16: RocketMQ 5 goes from an offset beyond the end to the end" in said
    assert "It can show P1, " in said


def test_a_client_that_cannot_play_a_scenario_is_refused_with_those_that_can() -> None:
    assert "R13 cannot be played with go; it can with java-5.3.3" in played(
        "R13", "--cluster", "rocketmq", "--client", "go"
    )


def test_a_client_of_rocketmq_needs_a_real_one() -> None:
    assert "add --cluster rocketmq" in played("O1", "--client", "go")


def test_what_is_about_our_own_clients_is_refused_on_a_real_one() -> None:
    assert "leave them out with --cluster rocketmq" in played("O1", "--cluster", "rocketmq", "--inbox")


def commands(folder: Path, *names: str) -> str:
    """A PATH with nothing but these."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", commands(tmp_path / "bin"))
    assert "java is not on the PATH: install a JDK" in played("O1", "--cluster", "rocketmq")


def test_without_maven_and_without_jars_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", commands(tmp_path / "bin", "java", "javac"))
    monkeypatch.setattr("dejamq_lab.rocketmq.programs.jar_cache", lambda name, version: tmp_path / name)
    assert "mvn is not on the PATH: install Maven" in played("O1", "--cluster", "rocketmq")


def test_a_maven_that_gets_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", commands(tmp_path / "bin", "java", "javac", "mvn") + os.pathsep + os.defpath)
    monkeypatch.setattr("dejamq_lab.rocketmq.programs.jar_cache", lambda name, version: tmp_path / name)
    assert "Maven got no rocketmq-broker-5.3.3.jar" in played("O1", "--cluster", "rocketmq")


def test_a_folder_without_the_jars_of_a_rocketmq_5_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", commands(tmp_path / "bin", "java", "javac"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "rocketmq-broker-4.9.8.jar").touch()
    said = played("O1", "--cluster", "rocketmq", "--jars", str(tmp_path / "lib"))
    assert "has no rocketmq-broker-5*.jar: --jars is the folder lib of a RocketMQ 5" in said


def test_without_go_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from dejamq_lab.rocketmq.programs import go_actor

    monkeypatch.setenv("PATH", commands(tmp_path / "bin"))
    with pytest.raises(jars.Missing, match="go is not on the PATH"):
        go_actor()


def test_the_list_says_which_clients_show_a_scenario_on_a_real_one() -> None:
    rows = {row["id"]: row for row in json.loads(run_here("lab", "list", "-o", "json").output)}
    assert rows["O1"]["rocketmq"] == ["java-5.3.3", "java-4.9.8", "go"]
    assert rows["O16"]["rocketmq"] == []
    assert rows["O1-alone"]["rocketmq"] == ["java-5.3.3"]
    assert "only with --cluster rocketmq" in run_here("lab", "list").output


def test_every_scenario_is_of_a_cause_and_says_what_happens() -> None:
    assert {cause_of(one) for one in SCENARIOS} - {"healthy"} <= set(all_causes())
    assert all(one.about.endswith(".") for one in SCENARIOS.values())
    assert not NOT_SHOWN.keys() & SCENARIOS.keys()
    assert chosen("o1-alone", ClientProgram.JAVA) is SCENARIOS["O1-alone"]


def test_every_recorded_run_is_of_a_scenario() -> None:
    folder = Path(__file__).parents[1] / "data" / "rocketmq"
    names = {recorded_name(one.id, client) for one in SCENARIOS.values() for client in one.clients}
    assert {run.parent.name for run in folder.glob("*/truth.json")} <= names


# links


def frame(code: int, opaque: int, *, answer: bool = False, topic: str = "") -> bytes:
    header: dict[str, Any] = {"code": code, "opaque": opaque, "flag": int(answer), "extFields": {"b": topic}}
    told = json.dumps(header).encode()
    return (4 + len(told)).to_bytes(4, "big") + len(told).to_bytes(4, "big") + told


def header_of(stream: BufferedIOBase) -> dict[str, Any] | None:
    """That of the next frame; None at the end."""
    try:
        length = int.from_bytes(stream.read(4), "big")
        header: dict[str, Any] | None = json.loads(stream.read(length)[4:]) if length else None
        return header
    except ConnectionError:
        return None


class FakeBroker(JavaServer):
    """It listens, and answers every request with a success."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[int] = []
        broker = self

        class Answers(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while header := header_of(self.rfile):
                    broker.heard.append(header["code"])
                    self.wfile.write(frame(0, header["opaque"], answer=True))

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers)
        super().__init__("broker", "broker-a", folder, folder, self.server.server_address[1], ())


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    fake = FakeBroker(tmp_path)
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()
    thread.join()


class Caller:
    """A client's connection to a broker, through its link."""

    def __init__(self, broker: FakeBroker) -> None:
        self._socket = socket.create_connection((LINKED, broker.port), DEADLINE_S)
        self._stream = self._socket.makefile("rb")

    def ask(self, code: int, opaque: int, topic: str = "") -> None:
        self._socket.sendall(frame(code, opaque, topic=topic))

    def answered(self) -> int | None:
        """The number of the next answer; None when the connection has ended."""
        header = header_of(self._stream)
        return int(header["opaque"]) if header else None

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


def test_a_link_loses_requests_and_answers_by_code_and_topic(broker: FakeBroker) -> None:
    with Links([broker], lambda: {os.getpid(): "billing-1"}) as links, closing(Caller(broker)) as caller:
        links.lose("billing-1", SEND_BACK, what=ANSWER)
        links.lose("billing-1", SEND, topic="%RETRY%")
        links.lose("billing-2", PULL)
        caller.ask(SEND_BACK, 0)
        caller.ask(SEND, 1, "%RETRY%billing")
        caller.ask(SEND, 2, "orders")
        caller.ask(PULL, 3)
        assert [caller.answered(), caller.answered()] == [2, 3]
        assert broker.heard == [SEND_BACK, SEND, PULL]
        links.deliver()
        caller.ask(SEND_BACK, 4)
        assert caller.answered() == 4


def test_a_link_that_is_cut_breaks_what_there_is_and_what_comes(broker: FakeBroker) -> None:
    with Links([broker], lambda: {os.getpid(): "billing-1"}) as links:
        with closing(Caller(broker)) as caller:
            caller.ask(PULL, 1)
            assert caller.answered() == 1
            links.cut("billing-1", "broker-a")
            assert caller.answered() is None
        with closing(Caller(broker)) as caller:
            assert caller.answered() is None
        links.heal("billing-1", "broker-a")
        with closing(Caller(broker)) as caller:
            caller.ask(PULL, 2)
            assert caller.answered() == 2


def test_the_owner_of_a_connection_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        assert machine_of(port, {os.getpid(): "billing-1"}) == "billing-1"
        assert machine_of(port, {1: "billing-2"}) == ""


# judging


def truth(folder: Path, causes: dict[str, list[str]], *times: str) -> Truth:
    """Each key was given to a member of the group so often."""
    deliveries = [
        {"machine": f"billing-{number}", "key": key, "unique_key": key.upper(), "topic": "orders", "queue_id": 0,
         "queue_offset": 0}
        for number, key in enumerate(times)
    ]  # fmt: skip
    (folder / "truth.json").write_text(json.dumps({"causes": causes, "deliveries": deliveries}))
    return Truth(folder)


def finding(key: str, cause: str | None) -> dict[str, Any]:
    second = {"topic": "orders", "queue_id": 0, "queue_offset": 0}
    return {"message_id": key.upper(), "identity": "I1", "cause": cause, "missing": "a log", "second": second}


def test_an_audit_that_names_what_was_done_has_no_problem(tmp_path: Path) -> None:
    true = truth(tmp_path, {"a": ["O1"], "*": ["O7"]}, "a", "a", "b", "b")
    assert problems(true, [finding("a", "O1"), finding("b", "O7")]) == []


def test_an_audit_that_names_another_cause_is_told(tmp_path: Path) -> None:
    true = truth(tmp_path, {"*": ["O1"]}, "a", "a")
    assert problems(true, [finding("a", "O9")]) == ["O1 is not named", "O9 is named, and was not the cause"]


def test_an_audit_that_cannot_tell_or_finds_nothing_is_told(tmp_path: Path) -> None:
    true = truth(tmp_path, {"*": ["O1"]}, "a", "a", "b", "b")
    told = problems(true, [finding("a", None)])
    assert told == ["O1 is not named", "undetermined: 1, for want of a log", "1 records came twice and are not found"]


def test_an_audit_that_finds_what_was_not_is_told(tmp_path: Path) -> None:
    assert (
        problems(truth(tmp_path, {}, "a"), [finding("a", None)])[-1]
        == "1 records are said to have come twice and did not"
    )
