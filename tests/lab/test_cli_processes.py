"""The command as people run it: real processes, exit statuses, one line for what goes wrong."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.process
NOBODY = "127.0.0.1:1"


@dataclass
class Ran:
    status: int | None
    output: str
    errors: str

    def json(self) -> Any:
        assert self.status == 0, self.errors
        return json.loads(self.output)

    def one_line(self) -> str:
        assert len(self.errors.splitlines()) == 1, self.errors
        return self.errors


async def dejamq(*arguments: str, stdin: bytes = b"") -> Ran:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate(stdin)
    return Ran(process.returncode, output.decode(), errors.decode())


@pytest.fixture
def usual_ports_taken() -> Iterator[None]:
    """So that the cluster of a test is not the one that a stray broker of this machine registers with."""
    with contextlib.ExitStack() as held:
        for port in (9876, 9877):
            holder = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # taken already: just as well
                holder.bind(("127.0.0.1", port))
                holder.listen()
        yield


@pytest.fixture
async def running(usual_ports_taken: None, tmp_path: Path) -> AsyncIterator[tuple[Path, str]]:
    directory = tmp_path / "cluster"
    ran = await dejamq("cluster", "up", "--dir", str(directory), "--namesrvs", "1", "--brokers", "1", "-o", "json")
    try:
        yield directory, ran.json()["namesrv"]
    finally:
        await dejamq("cluster", "down", "--dir", str(directory))


@pytest.mark.parametrize(
    "command",
    [(), ("serve",), ("serve", "namesrv"), ("serve", "broker"), ("cluster",), ("cluster", "up"), ("topic",), ("send",),
     ("consume",), ("store", "dump"), ("store", "verify"), ("bench",)],
    ids=" ".join,
)  # fmt: skip
async def test_every_command_has_help(command: tuple[str, ...]) -> None:
    ran = await dejamq(*command, "--help")
    assert ran.status == 0
    assert "usage" in ran.output.lower()


@pytest.mark.parametrize(
    "command",
    [("topic", "list"), ("topic", "route", "t"), ("cluster", "list"), ("consume", "t")],
    ids=" ".join,
)
async def test_a_wrong_address_is_one_line_that_says_what_to_do(command: tuple[str, ...]) -> None:
    ran = await dejamq(*command, "--namesrv", NOBODY)
    assert ran.status == 3
    assert NOBODY in ran.one_line()
    assert "Traceback" not in ran.errors


async def test_an_address_that_is_none_is_bad_use() -> None:
    ran = await dejamq("topic", "list", "--namesrv", "nowhere")
    assert ran.status == 2
    assert "host:port" in ran.one_line()


async def test_health_of_nobody_is_no() -> None:
    ran = await dejamq("cluster", "health", "--namesrv", NOBODY, "-o", "json")
    assert ran.status == 1
    assert [row["healthy"] for row in json.loads(ran.output)] == [False]


async def test_down_where_nothing_was_started_says_how_to_start(tmp_path: Path) -> None:
    ran = await dejamq("cluster", "down", "--dir", str(tmp_path))
    assert ran.status == 2
    assert "dejamq cluster up" in ran.one_line()


async def test_serving_on_a_port_in_use_is_one_line() -> None:
    holder = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{holder.sockets[0].getsockname()[1]}"
    ran = await dejamq("serve", "namesrv", "--listen", address)
    holder.close()
    await holder.wait_closed()
    assert ran.status == 1
    assert "port is in use" in ran.one_line()


async def test_an_option_that_does_not_exist_is_bad_use() -> None:
    assert (await dejamq("topic", "list", "--nonsense")).status == 2


async def test_a_cluster_stays_up_is_shown_and_goes_down(usual_ports_taken: None, tmp_path: Path) -> None:
    directory = str(tmp_path / "cluster")
    up = await dejamq("cluster", "up", "--dir", directory)
    assert up.status == 0, up.errors
    assert up.output.startswith("export DEJAMQ_NAMESRV='127.0.0.1:")
    again = await dejamq("cluster", "up", "--dir", directory)
    status = (await dejamq("cluster", "status", "--dir", directory, "-o", "json")).json()
    down = await dejamq("cluster", "down", "--dir", directory, "--purge")
    assert again.status == 2
    assert "already runs" in again.one_line()
    assert status["healthy"]
    assert [(p["name"], p["role"], p["state"]) for p in status["processes"]] == [
        ("namesrv-0", "namesrv", "running"),
        ("namesrv-1", "namesrv", "running"),
        ("broker-a", "broker", "running"),
        ("broker-b", "broker", "running"),
    ]
    assert down.status == 0
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240  # the test has nothing else to do meanwhile


async def test_a_start_that_fails_is_one_line_and_leaves_nothing_running(
    usual_ports_taken: None, tmp_path: Path
) -> None:
    (tmp_path / "broker-b").mkdir()
    (tmp_path / "broker-b" / "store").write_text("a file where a folder should be")
    up = await dejamq("cluster", "up", "--dir", str(tmp_path))
    status = await dejamq("cluster", "status", "--dir", str(tmp_path), "-o", "json")
    assert up.status == 1
    assert "broker-b did not start: dejamq-broker: " in up.one_line()
    assert {process["state"] for process in json.loads(status.output)["processes"]} == {"stopped"}
    assert (tmp_path / "broker-b" / "store").read_text() == "a file where a folder should be"


async def test_a_state_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("not ours")
    for command in ("up", "status", "down"):
        ran = await dejamq("cluster", command, "--dir", str(tmp_path))
        assert ran.status == 2
        assert "cluster.json" in ran.one_line()
    assert (tmp_path / "cluster.json").read_text() == "not ours"


async def test_a_body_over_the_limit_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(5 << 20))
    ran = await dejamq("send", "orders", "--file", str(tmp_path / "body"), "--namesrv", NOBODY)
    assert ran.status == 2
    assert "4194304" in ran.one_line()


async def test_a_foreground_cluster_ends_with_ctrl_c(usual_ports_taken: None, tmp_path: Path) -> None:
    up = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", "cluster", "up", "-f", "--namesrvs", "1", "--brokers", "1",
        "--dir", str(tmp_path), stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert up.stdout is not None
    assert (await up.stdout.readline()).startswith(b"export DEJAMQ_NAMESRV=")
    up.send_signal(signal.SIGINT)
    _, errors = await up.communicate()
    assert (up.returncode, errors) == (130, b"")
    status = await dejamq("cluster", "status", "--dir", str(tmp_path), "-o", "json")
    assert [process["state"] for process in json.loads(status.output)["processes"]] == ["stopped", "stopped"]


async def test_status_notices_a_broker_that_was_killed(running: tuple[Path, str]) -> None:
    directory, namesrv = running
    status = (await dejamq("cluster", "status", "--dir", str(directory), "-o", "json")).json()
    broker = status["processes"][1]["pid"]
    os.kill(broker, signal.SIGKILL)
    after = await dejamq("cluster", "status", "--dir", str(directory), "-o", "json")
    assert after.status == 1
    assert [p["state"] for p in json.loads(after.output)["processes"]] == ["running", "stopped"]
    assert (await dejamq("cluster", "health", "--namesrv", namesrv)).status == 1


async def test_a_broker_that_was_killed_is_started_again_with_its_store_and_nobody_else(
    running: tuple[Path, str],
) -> None:
    directory, namesrv = running
    cluster = ("--dir", str(directory), "-o", "json")
    assert (await dejamq("send", "orders", "kept", "--namesrv", namesrv)).status == 0
    before = (await dejamq("cluster", "status", *cluster)).json()["processes"]
    os.kill(before[1]["pid"], signal.SIGKILL)
    started = (await dejamq("cluster", "start", *cluster)).json()
    assert [(row["name"], row["address"]) for row in started] == [(before[1]["name"], before[1]["address"])]
    after = (await dejamq("cluster", "status", *cluster)).json()["processes"]
    assert after[0] == before[0]
    read = await dejamq("consume", "orders", "--namesrv", namesrv, "-o", "json")
    assert [json.loads(line)["body"] for line in read.output.splitlines()] == ["kept"]
    assert (await dejamq("cluster", "start", *cluster)).json() == []


async def test_what_was_sent_is_shown_and_taken_by_a_group(running: tuple[Path, str]) -> None:
    directory, namesrv = running
    to = ("--namesrv", namesrv, "-o", "json")
    assert len((await dejamq("topic", "create", "orders", "--queues", "2", *to)).json()) == 1
    ran = await dejamq("send", "orders", "-", "--lines", "--tags", "paid", *to, stdin=b"one\ntwo\nthree")
    sent = [json.loads(line) for line in ran.output.splitlines()]
    assert [row["status"] for row in sent] == ["SEND_OK"] * 3
    read = await dejamq("consume", "orders", *to)
    assert sorted(json.loads(line)["body"] for line in read.output.splitlines()) == ["one", "three", "two"]
    taken = await dejamq("consume", "orders", "--group", "shop", "--from", "begin", "--count", "3", *to)
    ids = {json.loads(line)["message_id"] for line in taken.output.splitlines()}
    assert ids == {row["message_id"] for row in sent}
    dumped = await dejamq("store", "dump", str(directory / "broker-a" / "store"), "-o", "json")
    assert json.loads(dumped.output.splitlines()[-1])["summary"]["records"] == 3


async def test_an_unknown_topic_is_one_line(running: tuple[Path, str]) -> None:
    for command in (("topic", "route"), ("consume",)):
        ran = await dejamq(*command, "nobody-has-it", "--namesrv", running[1])
        assert ran.status == 1
        assert "nobody-has-it" in ran.one_line()


async def test_ctrl_c_ends_a_follower_quietly(running: tuple[Path, str]) -> None:
    await dejamq("send", "orders", "first", "--namesrv", running[1])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", "consume", "orders", "--from", "begin", "--follow", "--namesrv", running[1],
        stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert b"first" in await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (130, b"")
