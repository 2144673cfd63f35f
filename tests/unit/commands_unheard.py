"""Runs many commands in one process that has loaded them: each in a fork whose standard output takes nothing.

``python commands_unheard.py FILE`` reads pairs of arguments and a way as JSON and prints a row for each.
"""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable

from dejamq_cli import command_line
from dejamq_cli.__main__ import main
from typer.testing import CliRunner


def full() -> None:
    os.dup2(os.open("/dev/full", os.O_WRONLY), 1)


def closed() -> None:
    os.close(1)
    sys.stdout = None  # as Python has it when it is started without


def left() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)


WAYS: dict[str, Callable[[], None]] = {"full": full, "closed": closed, "left": left}


def run(arguments: list[str], way: str) -> tuple[int, str]:
    """The exit status, and what was said on standard error."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.dup2(writing, 2)
        WAYS[way]()
        sys.argv = ["dejamq", *arguments]
        try:
            status = main()
        except BaseException as error:
            os.write(2, f"Traceback: {error!r}".encode())
            status = 99
        os._exit(status)  # the end of the interpreter would take longer than the command
    os.close(writing)
    with os.fdopen(reading, errors="replace") as errors:
        said = errors.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        listed = json.load(file)
    with contextlib.redirect_stdout(io.StringIO()):
        CliRunner().invoke(command_line.app, ["topic", "list", "--help"])  # loads what help texts need
    for arguments, way in listed:
        print(json.dumps([arguments, way, *run(arguments, way)]), flush=True)
