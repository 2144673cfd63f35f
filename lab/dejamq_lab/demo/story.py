"""The story of the demo, step by step: cluster, traffic, kill, takeover, audit, comparison."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from dejamq_proto.journal import lines
from dejamq_proto.journal.events import Assign, Fault
from dejamq_proto.journal.writer import new_boot_id, open_journal
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dejamq_lab.auditing import audit
from dejamq_lab.cluster.cluster import Cluster
from dejamq_lab.demo import orders, telling
from dejamq_lab.demo.compare import compare, read_findings
from dejamq_lab.demo.ledger import ChargeLedger
from dejamq_lab.errors import ClusterFailed

POLL_S = 0.05
STEP_DEADLINE_S = 60
KILL_AFTER_SHARE = 0.2
"""The first consumer dies when it has charged this share of all orders."""


class StoryFailed(Exception):
    """A step did not come to its end; the text says which, and where to look."""


class Story:
    """One run. ``out`` is made anew and keeps journals, stores, ledger and report for looking at afterwards."""

    def __init__(self, count: int, out: Path, *, inbox: bool = False) -> None:
        """``inbox``: the consumers charge through one, and no order may be charged twice."""
        self.count, self.out, self.inbox = count, out, inbox
        self.console = Console(highlight=False)
        self.ledger_path = out / "ledger.sqlite"
        self.environment = dict(os.environ)
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Play it. Returns the exit status: 0 when ledger and audit agree."""
        self._make_room()
        with self._progress() as progress:
            self.steps = progress
            async with self._cluster() as cluster:
                try:
                    await self._traffic(cluster)
                finally:
                    await self._end_processes()
            await self._audit(cluster.journal_dir, cluster.store_dirs)
        return self._verdict()

    def _make_room(self) -> None:
        if self.out.exists() and any(self.out.iterdir()) and not self.ledger_path.exists():
            raise StoryFailed(f"{self.out} holds something else than an earlier demo; choose another --out")
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        ChargeLedger(self.ledger_path).close()

    def _progress(self) -> Progress:
        return Progress(
            SpinnerColumn(), TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), console=self.console,
        )  # fmt: skip

    def _cluster(self) -> Cluster:
        return Cluster(
            brokers=2, namesrvs=2, processes=True, topics={orders.TOPIC: orders.QUEUES_PER_BROKER},
            journal_level="forensic", directory=self.out / "cluster",
        )  # fmt: skip

    async def _traffic(self, cluster: Cluster) -> None:
        self.environment |= {
            "DEJAMQ_NAMESRV": cluster.namesrv,
            "DEJAMQ_JOURNAL_DIR": str(cluster.journal_dir),
            "DEJAMQ_JOURNAL_LEVEL": "forensic",
        }
        ledger = ChargeLedger(self.ledger_path)
        with contextlib.closing(ledger):
            for name in ("consumer-1", "consumer-2"):
                options = ("--name", name, "--ledger", str(self.ledger_path), *(("--inbox",) if self.inbox else ()))
                await self._start(name, "consumer", *options)
            await self._follow("consumers share the queues", 2, lambda: sharing(cluster.journal_dir))
            await self._start("producer", "producer", "--orders", str(self.count))
            threshold = int(self.count * KILL_AFTER_SHARE)
            await self._follow("consumer-1 charges orders", threshold, lambda: ledger.charged_by().get("consumer-1", 0))
            await self._kill("consumer-1", cluster.journal_dir)
            self.steps.console.print("[bold red]kill -9[/] consumer-1; consumer-2 takes over its queues")
            await self._follow("orders charged, both together", self.count, ledger.orders_charged)

    async def _start(self, name: str, module: str, *arguments: str) -> None:
        command = (sys.executable, "-m", f"dejamq_lab.demo.{module}", *arguments)
        log = (self.out / f"{name}.log").open("wb")
        with log:
            self.processes[name] = await asyncio.create_subprocess_exec(
                *command, env=self.environment, stdout=log, stderr=asyncio.subprocess.STDOUT
            )  # fmt: skip

    async def _follow(self, text: str, goal: int, count: Callable[[], int]) -> None:
        """Show a bar until ``count`` reaches the goal. Raises StoryFailed when nothing moves for a minute."""
        task = self.steps.add_task(text, total=goal)
        loop = asyncio.get_running_loop()
        last, moved = -1, loop.time()
        while (now := count()) < goal:
            if now != last:
                last, moved = now, loop.time()
            elif loop.time() - moved > STEP_DEADLINE_S:
                raise StoryFailed(f"{text}: stuck at {now} of {goal}; see the logs in {self.out}")
            self._check_processes()
            self.steps.update(task, completed=now)
            await asyncio.sleep(POLL_S)
        self.steps.update(task, completed=goal)

    def _check_processes(self) -> None:
        for name, process in self.processes.items():
            if process.returncode not in (None, 0):
                log = (self.out / f"{name}.log").read_text(errors="replace").strip().splitlines()
                raise StoryFailed(f"{name} ended with status {process.returncode}: {log[-1] if log else 'no output'}")

    async def _kill(self, name: str, journal_dir: Path) -> None:
        """SIGKILL, and a line about it in a journal of our own, so that the report can show the moment."""
        process = self.processes.pop(name)
        boot_id = new_boot_id()
        journal = open_journal(journal_dir, role="harness", process="demo", boot_id=boot_id, level="forensic")
        for phase in ("begin", "end"):
            journal.write(Fault(kind="kill", target=name, target_pid=process.pid, phase=phase))
            if phase == "begin":
                process.send_signal(signal.SIGKILL)
                await process.wait()
        journal.close()

    async def _end_processes(self) -> None:
        """SIGTERM lets the remaining ones drain; what does not end within the deadline is killed."""
        for process in self.processes.values():
            if process.returncode is None:
                process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), STEP_DEADLINE_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _audit(self, journal_dir: Path, stores: list[Path]) -> None:
        task = self.steps.add_task("audit, PySpark rules", total=1)
        try:
            await audit(journal_dir, stores, self.out)
        except ClusterFailed as error:
            raise StoryFailed(f"{error}; see {self.out / 'audit.log'}") from None
        self.steps.update(task, completed=1)

    def _verdict(self) -> int:
        findings = read_findings(self.out)
        with contextlib.closing(ChargeLedger(self.ledger_path)) as ledger:
            comparison = compare(findings, ledger, inbox=self.inbox)
        telling.tell(self.console, self.out, findings, comparison)
        return 0 if comparison.agrees else 1


def sharing(journal_dir: Path) -> int:
    """How many consumers have seen both members in their last allocation: no queue moves after that.

    Without this wait the second consumer's arrival would itself cause duplicates, of other causes than the kill's.
    """
    return sum(len(_last_members(path)) == 2 for path in journal_dir.glob("consumer-*.jsonl"))


def _last_members(path: Path) -> list[str]:
    rounds = [event for event in lines.events([path], Assign) if event.topic == orders.TOPIC]
    return rounds[-1].members if rounds else []
