"""The commands about messages have the names and the options that other people's scripts are written against."""

from typing import Any

import pytest
import typer
from dejamq_cli.command_line import app

OPTIONS = {
    "send": "--file --lines --tags --key --delay-level --count --rate",
    "consume": "--group --from --count --follow",
    "message get": "",
    "message by-key": "",
    "message at": "",
    "message history": "--journal",
    "dlq list": "",
    "dlq export": "",
    "dlq replay": "--dry-run",
    "bench send": "--messages --body-bytes",
    "bench consume": "--messages --body-bytes",
    "bench latency": "--rate",
    "bench audit": "--messages",
}
ARGUMENTS = {
    "send": ["topic", "body"],
    "consume": ["topic"],
    "message get": ["message_id"],
    "message by-key": ["topic", "key"],
    "message at": ["topic", "broker", "queue_id", "queue_offset"],
    "message history": ["message_id"],
    "dlq replay": ["group", "ids"],
}


def command(path: str) -> Any:
    found: Any = typer.main.get_command(app)
    for word in path.split():
        found = found.commands[word]
    return found


@pytest.mark.parametrize("path", OPTIONS)
def test_a_command_has_its_options(path: str) -> None:
    known = {option for parameter in command(path).params for option in parameter.opts}
    assert set(OPTIONS[path].split()) <= known


@pytest.mark.parametrize("path", ARGUMENTS)
def test_a_command_has_its_arguments_in_their_order(path: str) -> None:
    arguments = [one.name for one in command(path).params if one.param_type_name == "argument"]
    assert arguments == ARGUMENTS[path]


@pytest.mark.parametrize("path", [path for path in OPTIONS if path not in ("message history", "bench audit")])
def test_a_command_that_asks_a_cluster_can_be_told_which_one(path: str) -> None:
    assert "--namesrv" in {option for parameter in command(path).params for option in parameter.opts}


@pytest.mark.parametrize("path", [path for path in OPTIONS if path != "dlq export"])
def test_a_command_answers_people_and_programs(path: str) -> None:
    assert "--output" in {option for parameter in command(path).params for option in parameter.opts}


@pytest.mark.parametrize("path", OPTIONS)
def test_the_help_begins_with_one_sentence_that_fits_a_line(path: str) -> None:
    first = (command(path).help or "").split("\n\n")[0]
    assert first.endswith((".", "?"))
    assert len(first) <= 110
