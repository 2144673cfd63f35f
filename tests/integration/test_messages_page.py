"""docs/messages.md: its examples are run in its order, and show what it says they show."""

import asyncio
import os
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any
from unittest import mock

from cli_runner import masked, run_beside
from dejamq import Admin, ConsumeFrom, DeadLetter, Message, Producer, ReceivedMessage
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text()
STEP = re.compile(r"```console\n(?P<console>.*?)```|<!-- test: (?P<event>\w+) -->|```sh\n(?P<shell>.*?)```", re.DOTALL)
COMMAND = re.compile(
    r"^\$ (?:printf '(?P<stdin>.*)' \| )?dejamq (?P<arguments>.*)\n(?P<said>(?:(?!\$ ).*\n)*)", re.MULTILINE
)


async def test_every_example_of_the_page_shows_what_the_page_says(tmp_path: Path) -> None:
    async with Cluster(topics={"payments": 1}, time_scale=0.1, journal_level="off") as cluster:
        with mock.patch.dict(os.environ, {"DEJAMQ_NAMESRV": cluster.namesrv}):
            shown = 0
            for step in STEP.finditer(PAGE):
                if step["event"] == "dead":
                    await bury(cluster)
                if step["event"] == "once":
                    await send_twice()
                for command in COMMAND.finditer(step["console"] or ""):
                    await check(command)
                    shown += 1
                for line in (step["shell"] or "").splitlines():
                    words = shlex.split(line.replace("dead.csv", str(tmp_path / "dead.csv")))[1:]
                    assert (await run_beside(*words)).status == 0, line
    assert shown == PAGE.count("\n$ ")
    assert (tmp_path / "dead.csv").read_text().count("no address") >= 1


async def check(command: re.Match[str]) -> None:
    stdin = (command["stdin"] or "").replace("\\n", "\n").encode()
    ran = await run_beside(*shlex.split(command["arguments"]), stdin=stdin)
    assert masked(ran.output).splitlines() == masked(command["said"]).splitlines(), ran.errors


async def send_twice() -> None:
    """By the page's own lines."""
    lines = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names: dict[str, Any] = {"Producer": Producer, "Message": Message, "body": b"order 17"}
    exec("async def example():\n" + textwrap.indent(lines, "    ") + "    return result\n", names)
    first, again = await names["example"](), await names["example"]()
    assert (first.duplicate, again.duplicate) == (False, True)
    assert again.offset_message_id == first.offset_message_id


async def bury(cluster: Cluster) -> None:
    """The group shipping gives the first message up."""

    async def ship(message: ReceivedMessage) -> None:
        if message.keys:
            raise DeadLetter("no address")

    consumer = cluster.push_consumer("shipping", consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe("payments", ship)
    async with consumer, Admin(cluster.namesrv) as admin, asyncio.timeout(20):
        while not [one async for one in admin.dead_letters("shipping")]:
            await asyncio.sleep(0.01)
