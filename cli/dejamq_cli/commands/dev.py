"""``dejamq dev``: a name server and a broker in one process at one port, in the foreground."""

import os
import sys

import typer

from dejamq_cli.terminal.help_text import examples

PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
EXAMPLES = examples(
    "dejamq dev", "dejamq dev --listen 127.0.0.1:0 --set enablePropertyFilter=true",
    "dejamq dev advertise localhost:32771",
)  # fmt: skip


def dev(context: typer.Context) -> None:
    """A name server and a broker in one process at one port, for programs under test: dejamq dev --help.

    Clients of dejamq and RocketMQ's own connect to it. The process becomes the server, so signals reach it directly.
    `dejamq dev advertise HOST:PORT` changes the address that clients of a running one are told. With --console the
    process has the pages of `dejamq console`, and the server is its child.
    """
    sys.stdout.flush()
    with_pages = any(argument.partition("=")[0] == "--console" for argument in context.args)
    module = "dejamq_cli.console.dev" if with_pages else "dejamq_lab.dev"
    os.execv(sys.executable, [sys.executable, "-m", module, *context.args])
