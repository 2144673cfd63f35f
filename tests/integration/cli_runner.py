"""Runs ``dejamq`` for tests: in this process against the servers of the test, or as a process of its own."""

import asyncio
import contextlib
import io
import json
import re
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from typing import Any
from unittest import mock

from dejamq_cli.command_line import main

NOBODY = "127.0.0.1:1"
"""An address where no name server is."""


@dataclass(frozen=True)
class Ran:
    status: int | None
    output: str
    errors: str

    def json(self) -> Any:
        """Of a command that ended well."""
        assert self.status == 0, self.errors
        return json.loads(self.output)

    def objects(self) -> list[Any]:
        """A stream: one object a line."""
        return [json.loads(line) for line in self.output.splitlines()]

    def one_line(self) -> str:
        """What it said went wrong."""
        assert len(self.errors.splitlines()) == 1, self.errors
        assert "Traceback" not in self.errors
        return self.errors

    def picture(self) -> str:
        """The output without what differs between two runs, to be compared as a whole."""
        return masked(self.output)


def masked(text: str) -> str:
    """Addresses, ids, times and widths of columns are told by what they are."""
    text = re.sub(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{3}[+-]\d\d:\d\d)?", "TIME", text)
    text = re.sub(r"\b127\.0\.0\.1:\d+", "HOST:PORT", text)
    text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text)
    return "\n".join(re.sub(r" {2,}", "  ", line) for line in text.splitlines()) + "\n"


def run_here(*arguments: str, stdin: bytes = b"") -> Ran:
    """In this thread, which must have no running loop. Nothing of it is a terminal."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.object(sys, "argv", ["dejamq", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8")),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        status = main()
    return Ran(status, *(stream.buffer.getvalue().decode(errors="surrogateescape") for stream in (output, errors)))


async def run_beside(*arguments: str, stdin: bytes = b"") -> Ran:
    """In a thread, while the servers of the test run in its loop. One at a time: streams belong to the process."""
    return await asyncio.to_thread(run_here, *arguments, stdin=stdin)


async def run_process(*arguments: str, stdin: bytes = b"") -> Ran:
    """As people do."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dejamq_cli", *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    output, errors = await process.communicate(stdin)
    return Ran(process.returncode, output.decode(), errors.decode())
