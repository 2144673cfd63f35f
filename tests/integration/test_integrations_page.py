"""The examples of docs/integrations.md, run as written: taskiq's own command, a killed worker, FastStream's types."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from consumer_cluster import until
from dejamq import Admin
from dejamq_lab import Cluster

PAGE = (Path(__file__).parents[2] / "docs/integrations.md").read_text()
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
"""The page's programs by the names in their first lines."""
DEADLINE_S = 60
pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@dataclass
class Site:
    """A cluster in this process, and a directory with the page's programs."""

    cluster: Cluster
    directory: Path

    @property
    def environment(self) -> dict[str, str]:
        journal = {"DEJAMQ_JOURNAL_DIR": str(self.cluster.journal_dir), "DEJAMQ_JOURNAL_LEVEL": "forensic"}
        return os.environ | {"DEJAMQ_NAMESRV": self.cluster.namesrv} | journal

    async def run(self, name: str) -> str:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, name], cwd=self.directory, env=self.environment, capture_output=True,
            text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def said(self) -> str:
        """What the worker printed so far."""
        return (self.directory / "said").read_text()

    async def says(self, pattern: str) -> re.Match[str]:
        try:
            await until(lambda: re.search(pattern, self.said()), DEADLINE_S)
        except TimeoutError:
            pytest.fail(f"no {pattern!r} in {self.said()}")
        match = re.search(pattern, self.said())
        assert match
        return match

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        """``taskiq worker``, told to stop at the end."""
        command = [str(Path(sys.executable).parent / "taskiq"), "worker", "tasks:broker", "--workers", "1"]
        with (self.directory / "said").open("w") as log:
            worker = await asyncio.create_subprocess_exec(
                *command, cwd=self.directory, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            yield
            worker.terminate()
            assert await asyncio.wait_for(worker.wait(), DEADLINE_S) == 0, self.said()
        finally:
            if worker.returncode is None:
                worker.kill()
                await worker.wait()


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    for name, text in PROGRAMS.items():
        (directory / name).write_text(text)
    async with Cluster(directory=directory / "cluster") as cluster:
        yield Site(cluster, directory)


async def test_a_task_whose_worker_is_killed_is_executed_again_and_the_audit_says_why(tmp_path: Path) -> None:
    async with site(tmp_path) as here:
        async with here.worker():
            selling = asyncio.create_task(here.run("shop.py"))
            pid = int((await here.says(r"order-17: try 1 in process (\d+)"))[1])
            os.kill(pid, signal.SIGKILL)
            await selling
            other = int((await here.says(r"order-17: try 2 in process (\d+)"))[1])
            for number in (17, 18, 19):
                await here.says(f"order-{number}: charged")
        said = here.said()
        assert other != pid
        assert [said.count(f"order-{number}: charged") for number in (17, 18, 19)] == [1, 1, 1]
        again = re.findall(r"(order-\d+): try 2", said)
        twice = await here.cluster.duplicates("workers")
        assert "order-17" in again
        assert 1 <= len(twice) <= len(again)  # what was on its way to the killed worker was delivered once
    verdict = await here.cluster.audit()
    assert (verdict.verdict, verdict.causes) == ("findings", {"B6": len(twice)})
    assert verdict.unfinished_first == len(twice)


async def test_a_handler_in_the_style_of_faststream_gets_its_types_and_what_it_cannot_read_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    async with site(tmp_path) as here, Admin(here.cluster.namesrv) as admin:
        assert await here.run("parcels.py") == "order 17: 1791 cents, try 1\n"
        assert [letter.body async for letter in admin.dead_letters("shipping")] == [b"no order"]
