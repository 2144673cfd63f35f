"""``dejamq serve``: one server in the foreground. The process becomes the server, so signals reach it directly."""

import os
import sys

import typer

app = typer.Typer(help="Run one server in the foreground.", no_args_is_help=True)
PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def namesrv(context: typer.Context) -> None:
    """A name server: [--listen 127.0.0.1:9876] [--config FILE] [--set KEY=VALUE …] [--journal-dir DIR]; or --help."""
    _become("dejamq_namesrv", context.args)


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def broker(context: typer.Context) -> None:
    """A broker: [--name broker-a] [--listen 127.0.0.1:10911] [--store DIR] [--namesrv …] and more; or --help."""
    _become("dejamq_broker", context.args)


def _become(module: str, arguments: list[str]) -> None:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
