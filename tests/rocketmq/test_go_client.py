"""RocketMQ's own Go client against dejamq and against a real RocketMQ: it prints the same."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from dejamq_lab.machines.jars import jar_cache
from java_clients import by_scenario, output_of

SCENARIOS = ["sync", "batch", "oneway", "async", "concurrent", "tags", "ordered", "pull", "poll", "admin"]
VERSION = "2.1.2"
pytestmark = [pytest.mark.go, pytest.mark.mvn, pytest.mark.slow, pytest.mark.timeout(900)]


def built() -> str:
    """Our program; Go keeps modules and what it compiled in folders of this project."""
    source, cache = Path(__file__).parent / "go", jar_cache("rocketmq-client-go", VERSION)
    folders = {"GOMODCACHE": str(cache / "modules"), "GOCACHE": str(cache / "compiled"), "GOFLAGS": "-modcacherw"}
    program = cache / "scenarios"
    build = ["go", "build", "-o", str(program), "."]
    subprocess.run(build, cwd=source, env=os.environ | folders, check=True, timeout=800)
    return str(program)


async def test_a_go_program_prints_what_it_prints_with_rocketmq(namesrv: str, real_namesrv: str) -> None:
    program = await asyncio.to_thread(built)
    ours, real = await asyncio.gather(*(
        output_of([program, address, "go", *SCENARIOS]) for address in (namesrv, real_namesrv)
    ))  # fmt: skip
    assert by_scenario(ours) == by_scenario(real)
    assert set(by_scenario(ours)) == {*SCENARIOS, "end"}


async def test_a_go_consumer_gets_a_failed_message_again(namesrv: str) -> None:
    """Only here: with RocketMQ it learns of its retry topic up to a minute later."""
    told = await output_of([await asyncio.to_thread(built), namesrv, "go", "retry"])
    assert by_scenario(told)["retry"] == ["try 0", "try 1"]
