"""The help of every command: there, true to the fixed list of commands and options, readable in 80 columns."""

import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any
from unittest import mock

import pytest
import typer
from cli_runner import NOBODY, run_here
from dejamq_broker.__main__ import parser as broker_parser
from dejamq_cli.command_line import app
from dejamq_namesrv.__main__ import parser as namesrv_parser

PUBLIC = {
    "cluster up": "--namesrvs --brokers --slaves --dir -f",
    "cluster status": "--dir",
    "cluster start": "--dir",
    "cluster down": "--dir --purge",
    "cluster health": "--brokers --strict",
    "cluster list": "",
    "broker list": "",
    "broker describe": "",
    "broker config get": "",
    "broker config set": "",
    "broker stop-writes": "",
    "broker start-writes": "",
    "topic create": "",
    "topic list": "",
    "topic describe": "",
    "topic delete": "",
    "topic route": "--diff",
    "group create": "--retry-max-times --retry-queues --broker --dry-run",
    "group list": "",
    "group describe": "",
    "group lag": "--watch",
    "group delete": "",
    "group pause": "",
    "group resume": "",
    "group plan": "--strategy --queues --members",
    "offset get": "",
    "offset reset": "--to-time --to-offset --to-begin --to-end --force --dry-run",
    "offset clone": "",
    "offset skip": "",
    "client list": "",
}
"""Commands of the administration, which other people's scripts are written against, and their options."""

CHANGING = (
    "broker config set", "broker stop-writes", "broker start-writes", "topic create", "topic delete", "group create",
    "group delete", "group pause", "group resume", "offset reset", "offset clone", "offset skip",
)  # fmt: skip
WITHOUT_CLUSTER = ("cluster up", "cluster status", "cluster start", "cluster down")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is no group of others."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


EVERY = dict(commands(typer.main.get_command(app)))
OWN = {path: command for path, command in EVERY.items() if command.params}
"""Without those that hand their arguments on to a program with a help of its own."""


def options(path: str) -> set[str]:
    return {name for parameter in EVERY[tuple(path.split())].params for name in parameter.opts}


@pytest.mark.parametrize("path", PUBLIC)
def test_the_commands_and_options_that_scripts_rely_on_are_there(path: str) -> None:
    assert set(PUBLIC[path].split()) <= options(path)
    assert {"-o", "--output"} <= options(path)
    assert (path in WITHOUT_CLUSTER) != ("--namesrv" in options(path))


@pytest.mark.parametrize(
    ("parser", "wanted"),
    [
        (namesrv_parser, "--listen --config --set --journal-dir"),
        (broker_parser, "--name --id --listen --advertise --store --namesrv --config --set --journal-dir"),
    ],
)
def test_the_options_of_single_servers_are_there(parser: Callable[[], ArgumentParser], wanted: str) -> None:
    text = parser().format_help()
    assert text.startswith("usage: dejamq serve ")
    assert set(wanted.split()) <= set(text.replace(",", " ").split())


@pytest.mark.parametrize("path", CHANGING)
def test_what_changes_something_has_a_dry_run(path: str) -> None:
    assert "--dry-run" in options(path)
    assert ("--yes" in options(path)) == path.endswith("delete")


@pytest.mark.parametrize("path", OWN, ids=" ".join)
def test_help_says_what_a_command_does_and_fits_80_columns(path: tuple[str, ...]) -> None:
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        ran = run_here(*path, "--help")
    assert ran.status == 0
    assert f"Usage: dejamq {' '.join(path)}" in ran.output
    assert max(map(len, ran.output.splitlines())) <= 80
    first = EVERY[path].help.split("\n\n")[0]
    assert first[-1] in ".?!"
    assert " ".join(first.split())[:40] in " ".join(ran.output.split())
    undescribed = [one.name for one in EVERY[path].params if not one.help and one.name != "help"]
    assert undescribed == []


@pytest.mark.parametrize("path", PUBLIC)
def test_the_help_of_the_administration_ends_with_an_example(path: str) -> None:
    assert f"dejamq {path}" in EVERY[tuple(path.split())].epilog


def test_the_first_help_names_every_group_of_commands_first_steps_and_statuses() -> None:
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}):
        ran = run_here("--help")
    assert all(f"│ {name} " in ran.output for name in {path[0] for path in EVERY})
    assert "dejamq send orders hello" in ran.output
    assert "3 cannot tell" in ran.output
    assert run_here("--version").output == f"dejamq {metadata.version('dejamq')}\n"


def completed(*words: str) -> str:
    """What bash offers for the last word."""
    asked = {"_DEJAMQ_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    with mock.patch.dict(os.environ, asked):
        return run_here().output


def test_the_shell_completes_commands_and_options() -> None:
    assert completed("dejamq", "offset", "re").split() == ["reset"]
    assert "--to-begin" in completed("dejamq", "offset", "reset", "--to-").split()


def test_the_shell_is_not_kept_waiting_by_a_cluster_that_is_not_there() -> None:
    with mock.patch.dict(os.environ, {"DEJAMQ_NAMESRV": NOBODY}):
        assert completed("dejamq", "topic", "describe", "or").split() == []
