"""docs/containers.md and docs/releasing.md: each command of their blocks is there, and takes these options.

What a release runs takes an hour, and some of it publishes. So nothing is run here but ``--help``.
"""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from dejamq_cli.command_line import app

HOUSE = Path(__file__).parents[2]


def commands(page: str) -> list[str]:
    """The lines of the page's shell blocks, and the commands that its text names, without comments."""
    text = (HOUSE / "docs" / page).read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"`((?:[A-Z_]+=\S+ )*(?:make|docker (?:run|build)|dejamq|build/dist/\S+) [^`…\n]*)`", text)
    return [line for line in lines if line and not line.startswith("#")]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (HOUSE / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def check_make(words: list[str], settings: dict[str, str]) -> None:
    """Its targets are there, and somebody reads what is set for it."""
    assert set(words[1:]) <= targets()
    read = "".join((HOUSE / name).read_text(encoding="utf-8") for name in ("Makefile", "tools/build_image.sh"))
    assert all(name in read for name in settings)


def check_dejamq(words: list[str], settings: dict[str, str]) -> None:
    """The command is there and has these options."""
    command: Any = typer.main.get_command(app)
    path = list(takewhile(lambda word: not word.startswith("-"), words[1:]))
    while path and hasattr(command, "commands"):
        command = command.commands[path.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


def check_program(words: list[str], settings: dict[str, str]) -> None:
    """A program of this tree, which says how it is used."""
    done = subprocess.run(
        [sys.executable, *words[1:], "--help"], cwd=HOUSE, capture_output=True, timeout=50, check=False
    )
    assert done.returncode == 0


def check_docker(words: list[str], settings: dict[str, str]) -> None:
    """An image that a target makes; settings of it that are known. ``tests/docker`` runs them."""
    assert words[1] in ("run", "build", "logs")
    made = (HOUSE / "Makefile").read_text(encoding="utf-8") + (HOUSE / "tools" / "build_image.sh").read_text("utf-8")
    assert all(word in made for word in words if word.startswith("dejamq:"))
    known = (HOUSE / "docs" / "settings.md").read_text("utf-8") + (HOUSE / "lab/dejamq_lab/dev.py").read_text("utf-8")
    given = [word.partition("=")[0] for word in words if word.startswith("DEJAMQ_")]
    assert all(name in known or name.removeprefix("DEJAMQ_").lower() in known for name in given)


def check_cibuildwheel(words: list[str], settings: dict[str, str]) -> None:
    """It is told by ``pyproject.toml`` what to build, and is given the sdist that ``make dist`` makes."""
    project = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))
    assert "cibuildwheel" in project["tool"]
    assert words[1:4] == ["run", "cibuildwheel", "--platform"]
    assert words[-1] == "dist/dejamq-VERSION.tar.gz"


def check_tool(words: list[str], settings: dict[str, str]) -> None:
    """One of those that ``make dist`` installs."""
    assert Path(words[0]).name in (HOUSE / "tools" / "dist-requirements.txt").read_text(encoding="utf-8")


CHECKS: dict[str, Callable[[list[str], dict[str, str]], None]] = {
    "make": check_make, "dejamq": check_dejamq, ".venv/bin/python": check_program, "docker": check_docker,
    "pipx": check_cibuildwheel, "build/dist/tools/bin/twine": check_tool,
}  # fmt: skip


@pytest.mark.parametrize("page", ["containers.md", "releasing.md"])
def test_each_command_of_the_page_is_there_and_takes_these_options(page: str) -> None:
    found = commands(page)
    assert len(found) >= 6
    for line in found:
        words = shlex.split(line, comments=True)
        settings = dict(word.split("=", 1) for word in takewhile(lambda word: re.match(r"[A-Z_]+=", word), words))
        words = words[len(settings) :]
        if words[0] == "export":
            assert words[1].startswith("DEJAMQ_NAMESRV=")
            continue
        if words[0] == "until":
            words = words[1 : words.index("|")]
        assert words[0] in CHECKS, f"nothing checks {line}"
        CHECKS[words[0]](words, settings)
