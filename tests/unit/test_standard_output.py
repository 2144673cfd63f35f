"""What a command says arrives, or its exit status is not 0: for each command, and for servers."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dejamq_cli.command_line import app
from store_making import GOLDEN
from test_cli_help import commands
from typer.main import get_command
from unheard import NOT_WRITTEN, STATUS, Unheard, ends

STORE = str(GOLDEN / "clean" / "store")
HELPS = 15
BECOMES_ANOTHER = {"serve namesrv", "serve broker", "audit", "dev"}
"""The process becomes another program."""


def every_command() -> list[list[str]]:
    paths = [list(path) for path, _ in commands(get_command(app))]
    return [path for path in paths if " ".join(path) not in BECOMES_ANOTHER]


def started(arguments: list[str], output: Any, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        timeout=50,
        check=False,
        **more,
    )


def check(one: Unheard) -> None:
    # the library for help texts has a status of its own for a reader that left
    assert one.status == STATUS[one.way] or (one.way == "left" and one.status == 1), one
    assert one.errors == NOT_WRITTEN[one.way], one


def test_no_command_that_cannot_tell_its_help_ends_with_0(tmp_path: Path, seed: int) -> None:
    """Other commands with each seed: one takes a tenth of a second."""
    chosen = random.Random(seed).sample(every_command(), HELPS)
    for one in ends(
        [([*path, "--help"], way) for path, way in zip(chosen, itertools.cycle(STATUS), strict=False)], tmp_path
    ):
        check(one)


def test_no_command_that_cannot_tell_its_answer_ends_with_0(tmp_path: Path) -> None:
    answers = [["--version"], ["store", "dump", STORE], ["store", "verify", STORE, "-o", "json"], ["lab", "list"]]
    for one in ends([*itertools.product(answers, STATUS)], tmp_path):
        check(one)


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "name"),
    [("dejamq_broker", "dejamq-broker"), ("dejamq_namesrv", "dejamq-namesrv"), ("dejamq_lab.dev", "dejamq-dev")],
)
def test_a_server_that_cannot_say_that_it_is_ready_ends_and_says_why(module: str, name: str, tmp_path: Path) -> None:
    own = ["--namesrv", ""] if module == "dejamq_broker" else []
    with open("/dev/full", "w") as full:
        ran = started([module, "--listen", "127.0.0.1:0", *own], full, cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"{name}: standard output cannot be written: No space left on device"
    assert "Traceback" not in ran.stderr


@pytest.mark.process
def test_errors_never_come_on_standard_output_and_no_file_of_a_store_is_a_standard_descriptor(tmp_path: Path) -> None:
    shown = (
        "import os, sys\nfrom dejamq_proto.standard_output import run\n"
        "def command():\n"
        "    opened = os.open('file', os.O_CREAT | os.O_WRONLY)\n"
        "    print('error', file=sys.stderr)\n    os.write(2, b'of a library')\n    print(opened)\n    return 0\n"
        "sys.exit(run('x', command))\n"
    )
    ran = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -c "$0" 2>&-', shown], cwd=tmp_path, stdout=subprocess.PIPE, check=True
    )
    assert int(ran.stdout) > 2
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.process
def test_a_full_standard_error_changes_neither_answer_nor_exit_status(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dejamq_cli", "store", "dump", "nowhere"]
        assert subprocess.run(command, stderr=full, cwd=tmp_path, timeout=50, check=False).returncode == 2


@pytest.mark.process
def test_a_server_without_standard_output_serves_and_one_that_is_read_is_heard(tmp_path: Path) -> None:
    """Service managers start servers without: the line that nobody waits for is left out."""
    command = f'exec "{sys.executable}" -m dejamq_namesrv --listen 127.0.0.1:0 --journal-dir journal >&-'
    process = subprocess.Popen(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        while b"event=journal" not in (line := process.stderr.readline()):
            assert line, "it ended"
        assert process.poll() is None
        held = os.listdir(f"/proc/{process.pid}/fd")
        assert {"0", "1", "2"} <= set(held)
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stderr.close()
