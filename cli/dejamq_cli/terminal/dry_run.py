"""Parts that all changing commands share: a dry run, and a question before data is destroyed."""

import sys
from typing import Annotated

import typer
from dejamq_proto.codes import ConfigError

from dejamq_cli.terminal.output import NO, say

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to go on.")]


def confirm(what: str, yes: bool) -> None:
    """Ask a person at a terminal; nobody is there to answer a script, which has to say --yes.

    Raises ConfigError without a terminal, ``typer.Exit`` with status 1 when the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}; add --yes if that is meant, or --dry-run to see what it would be")
    if not typer.confirm(f"{what}. Go on?", err=True):
        say("nothing was changed")
        raise typer.Exit(NO)


def say_dry_run() -> None:
    """For people; the rows are the same as without it."""
    say("dry run: nothing was changed")
