"""RocketMQ's own Java clients, 5.3.3 and 4.9.8, against dejamq and against a real RocketMQ: they print the same."""

import asyncio
from pathlib import Path

import pytest
from java_clients import VERSIONS, by_scenario, compiled, java, output_of, said

SCENARIOS = [
    "sync", "async", "oneway", "batch", "large", "concurrent", "ordered", "tags", "sql", "lite", "assign", "retry",
    "dead", "delay", "transaction", "check", "request", "query", "compressed", "traced", "broadcast", "vip",
    "namespace",
]  # fmt: skip
pytestmark = [pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_java_program_prints_what_it_prints_with_rocketmq(
    namesrv: str, real_namesrv: str, version: str, tmp_path: Path
) -> None:
    class_path = compiled(version)
    word = f"w{version.replace('.', '')}"
    ours, real = await asyncio.gather(
        said(class_path, namesrv, word, SCENARIOS, tmp_path / "ours"),
        said(class_path, real_namesrv, word, SCENARIOS, tmp_path / "real"),
    )
    assert by_scenario(ours) == by_scenario(real)
    assert set(by_scenario(ours)) == {*SCENARIOS, "end"}


async def test_messages_for_a_time_come_at_it_and_a_recalled_one_does_not(
    namesrv: str, real_namesrv: str, tmp_path: Path
) -> None:
    class_path = compiled("5.3.3")
    ours, real = await asyncio.gather(
        said(class_path, namesrv, "timers", ["timer"], tmp_path / "ours"),
        said(class_path, real_namesrv, "timers", ["timer"], tmp_path / "real"),
    )
    told = by_scenario(ours)["timer"]
    assert sorted(told) == sorted(by_scenario(real)["timer"])  # several are due at one time
    assert sorted(line.split(" after ")[0] for line in told if " after " in line) == [
        f"body {number}" for number in (0, 1, 2, 3, 5, 9)
    ]
    assert told[-1] == "broker exception 13"


async def test_headers_in_rocketmqs_binary_form_are_understood(namesrv: str, tmp_path: Path) -> None:
    wanted = ["sync", "batch", "ordered", "lite"]
    options = ["-Drocketmq.serialize.type=ROCKETMQ", "Scenarios"]
    told = by_scenario(await output_of(java(compiled("5.3.3"), tmp_path, *options, namesrv, "b", *wanted)))
    found = {name: len(lines) for name, lines in told.items()}
    assert found == {"sync": 7, "batch": 4, "ordered": 1, "lite": 10, "end": 0}
