"""A client as a process of its own, from the side that starts it."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from dejamq_lab.bench.client.result import Job, Span
from dejamq_lab.errors import ClusterFailed

READY_S = 90
SLOWEST_PER_S = 500
"""Messages a second below which a measurement is given up."""


def python_client(system: str) -> list[str]:
    """The command of a client in Python; it ends when this process does."""
    return [
        sys.executable,
        "-m",
        "dejamq_lab.cluster.die_with_parent",
        str(os.getpid()),
        "dejamq_lab.bench.client.worker",
        system,
    ]


class ClientProcess:
    """Connected and ready inside of the ``async with``; killed at its end if it still runs.

    Raises ClusterFailed, here and in ``result``, with the last line that the process said on standard error.
    """

    def __init__(self, command: Sequence[str], job: Job) -> None:
        self._command, self._job = [*command, msgspec.json.encode(job).decode()], job
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __aexit__

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        try:
            await self._line(b"ready", READY_S)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        self._errors.close()

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def result(self) -> Span:
        """The process's measurement; the process has ended in order by then."""
        span = msgspec.json.decode(await self._line(b"{", READY_S + self._job.load.messages / SLOWEST_PER_S), type=Span)
        await asyncio.wait_for(self._process.wait(), READY_S)
        return span

    async def _line(self, begins: bytes, timeout_s: float) -> bytes:
        """The next line of standard output that begins like this; a JVM may say other things between."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(timeout_s):
                while line := await self._process.stdout.readline():
                    if line.startswith(begins):
                        return line
        except TimeoutError:
            raise ClusterFailed(f"{self._name()} took longer than {timeout_s:.0f} s{self._last_words()}") from None
        raise ClusterFailed(f"{self._name()} failed{self._last_words()}")

    def _name(self) -> str:
        return f"the process that was to {self._job.role} for {self._job.what}"

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""


async def run_client(command: Sequence[str], job: Job) -> Span:
    """One client by itself, from its start to its end."""
    async with ClientProcess(command, job) as client:
        client.go()
        return await client.result()
