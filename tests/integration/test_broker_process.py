"""``python -m dejamq_broker`` as people run it: what it prints, how it ends, what a kill leaves."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_wire import Wire, a_run, until
from dejamq_proto.codes import Code, DejamqError
from journalled import journalled

pytestmark = pytest.mark.process

SMALL = ("--set", "mapped_file_size_commit_log=1048576", "--set", "mapped_file_size_consume_queue=20000")


class Process:
    """One broker process with its output in files, so that no pipe fills up."""

    def __init__(self, directory: Path, *flags: str) -> None:
        directory.mkdir(exist_ok=True)
        self.out, self.err = directory / "out", directory / "err"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DEJAMQ_")}
        command = [sys.executable, "-m", "dejamq_broker", "--namesrv", "", "--listen", "127.0.0.1:0", *SMALL, *flags]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.popen = subprocess.Popen(command, stdout=out, stderr=err, cwd=directory, env=environment)

    async def ready(self) -> str:
        """The address of the ready line."""
        line = await until(lambda: self.out.read_text() or (self.popen.poll() is not None and "died"), 20)
        assert line != "died", self.err.read_text()
        word, role, _, address = line.split()
        assert (word, role) == ("ready", "broker")
        return str(address)

    async def ended(self) -> int:
        return await asyncio.to_thread(self.popen.wait, 20)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return await self.ended()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    started: list[Process] = []

    def start_one(*flags: str) -> Process:
        started.append(Process(tmp_path / f"run{len(started)}", *flags))
        return started[-1]

    yield start_one
    for process in started:
        if process.popen.poll() is None:
            process.popen.kill()
            process.popen.wait()


async def refused(process: Process, status: int, *named: str) -> None:
    """It ended with this status and one line that names these things."""
    assert await process.ended() == status
    (line,) = process.err.read_text().splitlines()
    assert line.startswith("dejamq-broker: ")
    for name in named:
        assert name in line
    assert process.out.read_text() == ""


async def test_the_log_of_a_broker_begins_with_the_settings_that_were_chosen(start: Any) -> None:
    process = start("--log-json", "--set", "flush_delay_offset_interval_ms=7000")
    await process.ready()
    assert await process.stop() == 0
    lines = [json.loads(line) for line in process.err.read_text().splitlines()]
    chosen = {line["name"]: (line["value"], line["default"]) for line in lines if line["event"] == "setting"}
    assert chosen["flush_delay_offset_interval_ms"] == ("7000", "10000")
    assert chosen["log_format"] == ("json", "text")
    assert [line["event"] for line in lines[: len(chosen) + 3]] == [
        "starting", *["setting"] * len(chosen), "settings_default", "journal",
    ]  # fmt: skip
    assert lines[len(chosen) + 1]["broker_name"] == "broker-a"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_cleanly(start: Any, tmp_path: Path, number: signal.Signals) -> None:
    store, journal = tmp_path / "s", tmp_path / "j"
    process = start("--store", str(store), "--journal-dir", str(journal), "--name", "b1")
    async with Wire(await process.ready()) as wire:
        await wire.send(a_run("t", [b"x"]))
    assert (store / "abort").exists()
    assert await process.stop(number) == 0
    assert not (store / "abort").exists()
    (file,) = journal.iterdir()
    lines = journalled(file)
    assert (lines[0]["event"], lines[0]["state"]) == ("STATE", "started")
    assert (lines[-1]["event"], lines[-1]["state"]) == ("STATE", "closed")
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))


async def test_a_kill_loses_only_commits_since_the_last_flush(start: Any, tmp_path: Path) -> None:
    flags = ("--store", str(tmp_path / "s"), "--journal-dir", str(tmp_path / "j"), "--journal-level", "forensic")
    process = start(*flags, "--set", "flush_consumer_offset_interval_ms=50")
    file = tmp_path / "s" / "config" / "consumerOffset.json"
    async with Wire(await process.ready()) as wire:
        await wire.send(a_run("t", [b"1", b"2", b"3"]))
        await wire.heartbeat_stream("g")
        await wire.commit("g", "t", 2)
        await until(lambda: file.exists() and '"0": 2' in file.read_text())
    await process.stop(signal.SIGKILL)
    process = start(*flags, "--set", "flush_consumer_offset_interval_ms=3600000")
    async with Wire(await process.ready()) as wire:
        assert await wire.committed("g", "t") == 2
        await wire.commit("g", "t", 3)
    await process.stop(signal.SIGKILL)
    process = start(*flags)
    async with Wire(await process.ready()) as wire:
        assert await wire.committed("g", "t") == 2
        assert (await wire.pull("t", 0)).max_offset == 3
    events = journalled(tmp_path / "j")
    assert sorted(event["clean"] for event in events if event["event"] == "BOOT") == [False, False, True]
    assert {event["new"] for event in events if event["event"] == "OFF_SET"} == {2, 3}


async def test_a_second_broker_on_the_same_store_is_told_so(start: Any, tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    first = start("--store", store)
    address = await first.ready()
    await refused(start("--store", store), 1, store)
    async with Wire(address) as wire:
        assert (await wire.send(a_run("t", [b"still there"]))).code == 0


async def test_a_port_in_use_is_told_and_the_store_left_clean(start: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        await refused(start("--store", str(tmp_path / "s"), "--listen", address), 1, address, "in use")
    assert not (tmp_path / "s" / "abort").exists()


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("commitlog/00000000000000000000", b"not a log"),
        ("commitlog/holiday.jpg", b"not a log"),
        ("config/topics.json", b"{"),
        ("config/topics.json", b'{"topicConfigTable": []}'),
        ("config/consumerOffset.json", b'{"offsetTable": {"t@g": {"x": 1}}}'),
        ("config/delayOffset.json", b"\xff\xfe"),
        ("config/subscriptionGroup.json", b"[]"),
    ],
)
async def test_a_foreign_file_is_named_and_nothing_is_overwritten(
    start: Any, tmp_path: Path, name: str, data: bytes
) -> None:
    file = tmp_path / "s" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    await refused(start("--store", str(tmp_path / "s")), 1, Path(name).name)
    assert content(tmp_path / "s")[name] == data


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--set", "nonsense=1"), "nonsense"),
        (("--set", "broker_id=first"), "broker_id"),
        (("--id", "-1"), "broker id"),
        (("--listen", "here"), "HOST:PORT"),
        (("--config", "absent.toml"), "absent.toml"),
    ],
)
async def test_bad_use_is_one_line_and_status_two(start: Any, flags: tuple[str, ...], named: str) -> None:
    await refused(start(*flags), 2, named)


async def test_a_store_path_that_is_a_file_is_told(start: Any, tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a letter")
    await refused(start("--store", str(tmp_path / "s")), 1, str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "a letter"


async def test_a_lost_broker_is_an_error_with_a_code(start: Any, tmp_path: Path) -> None:
    process = start("--store", str(tmp_path / "s"))
    async with Wire(await process.ready()) as wire:
        await wire.heartbeat_stream("g")
        await process.stop(signal.SIGKILL)
        with pytest.raises(DejamqError) as caught:
            await wire.commit("g", "t", 1)
        assert caught.value.code is Code.CONNECT_BROKER_EXCEPTION


async def test_all_descriptors_that_the_system_grants_are_taken(start: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 512), hard))
    try:
        broker = start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await broker.ready()
    assert resource.prlimit(broker.popen.pid, resource.RLIMIT_NOFILE) == (hard, hard)
