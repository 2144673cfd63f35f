"""docs/collect.md and docs/evidence.md: the examples are run, and every kind and field of a line is on the page."""

import os
import re
import shlex
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from cli_cluster import fill, ignore, make
from cli_runner import run_beside
from dejamq import Message
from dejamq_cli.command_line import app
from dejamq_lab import Cluster
from evidence import lines_of

DOCS = Path(__file__).parents[2] / "docs"
PAGE, FORMAT = (DOCS / "collect.md").read_text(), (DOCS / "evidence.md").read_text()


def alike(text: str) -> str:
    """Without times and sizes, and how many requests that were."""
    return re.sub(r"^(seconds|longest_round_s|bytes|requests) +\S+$", r"\1 N", text, flags=re.MULTILINE)


async def test_the_example_shows_what_the_page_says_and_every_line_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Cluster(brokers=2, namesrvs=2, time_scale=0.1, journal_level="off") as cluster:
        await fill(cluster, "orders", 1)
        await make(cluster, "traces")
        async with cluster.producer("tracer") as producer:
            for queue in (await producer.publish_queues("traces"))[:2]:
                await producer.send(Message("traces", b"Pub\x01", keys="k"), queue=queue)
        consumer = cluster.push_consumer("billing")
        consumer.subscribe("orders", ignore)
        async with consumer:
            with mock.patch.dict(os.environ, {"DEJAMQ_NAMESRV": cluster.namesrv}):
                ((command, said),) = re.findall(r"^\$ dejamq (.*)\n((?:(?!```).*\n)*)", PAGE, re.MULTILINE)
                ran = await run_beside(*shlex.split(command), "--trace-topic", "traces", "--running-info")
    told = re.sub(r", \d+ running", "", ran.output)
    assert alike(told) == alike(said), ran.errors
    kinds = set(re.findall(r"^\| `(\w+)` \| \d", FORMAT, re.MULTILINE)) | {"trace", "session"}
    fields = set(re.findall(r"`(\w+)`", FORMAT))
    lines = lines_of(tmp_path / "evidence")
    assert {line["kind"] for line in lines} == kinds
    assert {field for line in lines for field in line} <= fields
    events = re.findall(r"^\| `(\w+)` \| [a-z]", FORMAT.partition("## The collecting itself")[2], re.MULTILINE)
    assert {line["event"] for line in lines if line["kind"] == "session"} <= set(events)


def test_the_options_that_the_page_names_are_there() -> None:
    command: Any = typer.main.get_command(app)
    known = {option for parameter in command.commands["collect"].params for option in parameter.opts}
    named = set(re.findall(r"--[a-z][a-z-]+", PAGE))
    assert len(named) > 6
    assert named <= known
