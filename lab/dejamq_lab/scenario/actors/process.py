"""An actor's process, seen from the lab: commands to it, and what can be done to it."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from dejamq_proto import failpoints

from dejamq_lab.errors import ClusterFailed
from dejamq_lab.scenario.actors.main import ActorCommand, Answer
from dejamq_lab.scenario.actors.performer import ActorPart

START_TIMEOUT_S, STOP_TIMEOUT_S = 30, 30
Note = Callable[[str, str, str, int], None]
"""Write a fault down: kind, target, phase, pid."""


class ActorProcess:
    """One actor. Every fault is noted before and after; a process that ended can be spawned again."""

    def __init__(self, part: ActorPart, directory: Path, note: Note) -> None:
        self.part, self._directory, self._note = part, directory, note
        self._failpoints = directory / f"{part.name}.failpoints"
        self._process: asyncio.subprocess.Process | None = None
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._asked = 0

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def spawn(self) -> None:
        """Start the process; its client is not started. Raises ClusterFailed."""
        path = self._directory / f"{self.part.name}.json"
        path.write_bytes(msgspec.json.encode(self.part))
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DEJAMQ_")}
        with (self._directory / f"{self.part.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=log, env=environment | {failpoints.VARIABLE: f"@{self._failpoints}"}, start_new_session=True,
            )  # fmt: skip
        ready = self._answers[0] = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(self._process))
        await asyncio.wait_for(ready, START_TIMEOUT_S)

    def command(self, part: Path) -> list[str]:
        """The command line."""
        module = ("dejamq_lab.cluster.die_with_parent", str(os.getpid()), "dejamq_lab.scenario.actors.main")
        return [sys.executable, "-m", *module, str(part)]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs; no fault."""
        if self._process is not None and self.running:
            self._process.send_signal(number)

    async def ask(self, command: str, timeout_s: float, **arguments: Any) -> int | None:
        """Have a command done. Raises ClusterFailed with what went wrong."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None:
            raise ClusterFailed(f"{self.part.name} does not run; start it first")
        self._asked += 1
        number = self._asked
        answered = self._answers[number] = asyncio.get_running_loop().create_future()
        process.stdin.write(msgspec.json.encode(ActorCommand(number, command, arguments)) + b"\n")
        try:
            answer: Answer = await asyncio.wait_for(answered, timeout_s)
        except TimeoutError:
            raise ClusterFailed(f"{self.part.name} did not {command} within {timeout_s:.0f} s") from None
        if answer.error:
            raise ClusterFailed(f"{self.part.name} could not {command}: {answer.error}")
        return answer.value

    async def strike(self, kind: str, number: signal.Signals) -> None:
        """Send a signal, as a fault; waits for the end after SIGKILL and SIGTERM."""
        process = self._process
        if process is None or process.returncode is not None:
            raise ClusterFailed(f"{kind}: {self.part.name} does not run")
        self._note(kind, self.part.name, "begin", process.pid)
        self.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
        self._note(kind, self.part.name, "end", process.pid)

    def arm(self, name: str, terms: str) -> None:
        """Arm a failpoint; a process that does not run yet begins with it."""
        failpoints.arm(self._failpoints, name, terms)
        self._note(f"failpoint {name}={terms}", self.part.name, "begin", self._process.pid if self._process else 0)

    async def end(self) -> None:
        """Close its client and let it go; SIGKILL when it does not end in time."""
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            self.send_signal(signal.SIGCONT)
            self.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self.send_signal(signal.SIGKILL)
                await process.wait()
        await self._listening

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            answer = msgspec.json.decode(line, type=Answer)
            waiting = self._answers.pop(answer.id, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)
        for number, waiting in self._answers.items():
            if not waiting.done():
                waiting.set_result(Answer(number, error="its process ended"))
        self._answers.clear()
