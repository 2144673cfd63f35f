"""docs/cli.md: its examples are run in its order, and show what it says they show."""

import contextlib
import itertools
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from cli_cluster import fill, ignore
from cli_runner import masked, run_beside
from dejamq import Admin, ConsumeFrom
from dejamq_cli.command_line import app
from dejamq_lab import Cluster
from dejamq_lab.cluster.waiting import until_async

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
STEP = re.compile(r"```console\n(?P<console>.*?)```|<!-- test: (?P<event>\w+) -->|```sh\n(?P<shell>.*?)```", re.DOTALL)


def alike(text: str) -> list[str]:
    """Lines without what differs from run to run; how many routes a name server has is one of these things."""
    return re.sub(r"^(HOST:PORT)  \d+", r"\1  N", masked(text), flags=re.MULTILINE).splitlines()


async def test_every_example_of_the_page_shows_what_the_page_says() -> None:
    async with Cluster(brokers=2, namesrvs=2, time_scale=0.1, journal_level="off") as cluster:
        async with contextlib.AsyncExitStack() as clients:
            with mock.patch.dict(os.environ, {"DEJAMQ_NAMESRV": cluster.namesrv}):
                shown = 0
                for step in STEP.finditer(PAGE):
                    if step["event"] == "messages":
                        await fill(cluster, "orders", 3)
                    elif step["event"] == "members":
                        await clients.enter_async_context(members(cluster))
                    elif step["console"]:
                        command, _, said = step["console"].removeprefix("$ dejamq ").partition("\n")
                        ran = await run_beside(*shlex.split(command))
                        assert alike(ran.output) == alike(said), f"{command}\n{ran.output}\n{ran.errors}"
                        shown += 1
        assert shown == PAGE.count("$ dejamq ")


@contextlib.asynccontextmanager
async def members(cluster: Cluster) -> AsyncIterator[None]:
    """billing-1 and billing-2, who have consumed and committed everything."""
    async with contextlib.AsyncExitStack() as stack:
        for name in ("billing-1", "billing-2"):
            consumer = cluster.push_consumer("billing", client_id=name, consume_from=ConsumeFrom.FIRST_OFFSET)
            consumer.subscribe("orders", ignore)
            await stack.enter_async_context(consumer)
        async with Admin(cluster.namesrv) as admin:

            async def settled() -> bool:
                progress = await admin.progress("billing")
                infos = [await admin.running_info("billing", name) for name in ("billing-1", "billing-2")]
                shared = [len([one for one in info.queues if not one.dropped]) for info in infos]
                return len(progress) == 6 and not any(one.lag for one in progress) and shared == [3, 3]

            assert await until_async(settled, 20)
        yield


def test_commands_that_the_page_only_names_exist_with_these_options() -> None:
    commands = [line for step in STEP.finditer(PAGE) for line in (step["shell"] or "").splitlines()]
    commands += re.findall(r"`(dejamq [a-z][^`]*)`", PAGE)
    commands += [words.replace(",", "") for words in re.findall(r"\[CMD, (dejamq[^\]]*)\]", PAGE)]
    assert len(commands) >= 10
    for line in commands:
        words = shlex.split(re.search(r"dejamq ([^)\"]*)", line)[1])  # type: ignore[index]  # found above
        command: Any = typer.main.get_command(app)
        path = list(itertools.takewhile(lambda word: word[0] not in "-A", words))
        while path and hasattr(command, "commands"):
            command = command.commands[path.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line
