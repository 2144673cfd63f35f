"""``dejamq serve``: one server in the foreground. The process becomes the server, so signals reach it directly."""

import os
import sys

import typer

from dejamq_cli.terminal.help_text import examples

app = typer.Typer(
    help="Run one server in the foreground, as containers and service managers do.",
    epilog=examples(
        "dejamq serve namesrv --listen 127.0.0.1:9876",
        "dejamq serve broker --name broker-a --store ./store --set autoCreateTopicEnable=false",
    ),
    no_args_is_help=True,
)
PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def namesrv(context: typer.Context) -> None:
    """A name server: brokers register, clients ask. All its options: dejamq serve namesrv --help."""
    _become("dejamq_namesrv", context.args)


@app.command(context_settings=PASS_THROUGH, add_help_option=False)
def broker(context: typer.Context) -> None:
    """A broker with its store. All its options: dejamq serve broker --help."""
    _become("dejamq_broker", context.args)


def _become(module: str, arguments: list[str]) -> None:
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
