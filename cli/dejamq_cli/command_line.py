"""All commands of ``dejamq``, and how the caller sees their errors."""

import logging
import sys
from importlib import metadata
from typing import Annotated, Any

import typer
from dejamq_proto.codes import (
    BrokerUnavailable,
    Code,
    ConfigError,
    DejamqError,
    InvalidName,
    MessageTooLarge,
    SendTimeout,
)
from dejamq_proto.standard_output import OutputFailed

from dejamq_cli.access.watch import with_seconds
from dejamq_cli.commands import (
    acl,
    audit,
    bench,
    broker,
    client,
    cluster,
    collect,
    console,
    consume,
    dev,
    dlq,
    group,
    lab,
    message,
    offset,
    send,
    serve,
    store,
    topic,
    user,
)
from dejamq_cli.terminal.help_text import examples, flow
from dejamq_cli.terminal.output import BAD_USE, CANNOT_TELL, INTERRUPTED, NO, OK, OutputClosed, say, tell

app = typer.Typer(
    name="dejamq",
    help="A RocketMQ-style message broker that can say why a message was delivered twice.",
    epilog=examples('eval "$(dejamq cluster up)"', "dejamq send orders hello", "dejamq consume orders")
    + "\n\nExit status: 0 ok, 1 no or findings, 2 bad use, 3 cannot tell, 130 Ctrl-C, 141 nobody reads.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        tell(f"dejamq {metadata.version('dejamq')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before the command."""


RUN, OPERATE, MESSAGES, PROVE = "A cluster", "See and change", "Messages", "Look into it"
app.add_typer(cluster.app, name="cluster", rich_help_panel=RUN)
app.add_typer(serve.app, name="serve", rich_help_panel=RUN)
app.command("dev", epilog=dev.EXAMPLES, context_settings=dev.PASS_THROUGH, add_help_option=False, rich_help_panel=RUN)(
    dev.dev
)
app.add_typer(broker.app, name="broker", rich_help_panel=OPERATE)
app.add_typer(topic.app, name="topic", rich_help_panel=OPERATE)
app.add_typer(group.app, name="group", rich_help_panel=OPERATE)
app.add_typer(offset.app, name="offset", rich_help_panel=OPERATE)
app.add_typer(client.app, name="client", rich_help_panel=OPERATE)
app.add_typer(user.app, name="user", rich_help_panel=OPERATE)
app.add_typer(acl.app, name="acl", rich_help_panel=OPERATE)
app.command("send", epilog=send.EXAMPLES, rich_help_panel=MESSAGES)(send.send)
app.command("consume", epilog=consume.EXAMPLES, rich_help_panel=MESSAGES)(consume.consume)
app.add_typer(message.app, name="message", rich_help_panel=MESSAGES)
app.add_typer(dlq.app, name="dlq", rich_help_panel=MESSAGES)
audit.add_to(app, rich_help_panel=PROVE)
app.command("console", epilog=console.EXAMPLES, rich_help_panel=PROVE)(console.console)
app.command("collect", epilog=collect.EXAMPLES, rich_help_panel=PROVE)(collect.collect)
app.add_typer(store.app, name="store", rich_help_panel=PROVE)
app.add_typer(lab.app, name="lab", rich_help_panel=PROVE)
app.add_typer(bench.app, name="bench", rich_help_panel=PROVE)
flow(app)

NO_SUCH_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Of a path, these are for the caller to change; a disk that is full is not."""
UsageError: Any = typer.BadParameter.__mro__[1]
"""The command line's library raises this for bad use; it has no public name there."""


def main() -> int:
    """Run the command of this process's arguments. Errors are one line; the exit status says which kind."""
    logging.basicConfig(level=logging.ERROR, format="dejamq: %(message)s")
    try:
        # not standalone: errors are told here, and a reader that went away is no failure
        status = app(with_seconds(sys.argv[1:]), prog_name="dejamq", standalone_mode=False)
    except SystemExit as end:  # by the library itself, for help and completion
        return end.code if isinstance(end.code, int) else NO
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputClosed:
        return OK
    except typer.Abort:
        return INTERRUPTED
    except UsageError as error:
        return _bad_use(error)
    except DejamqError as error:
        say(str(error))
        return status_of(error)
    except UnicodeEncodeError as error:  # only an argument that is not UTF-8 becomes such a text
        say(f"{error.object!a} is no text in UTF-8, which names, ids and keys are")
        return BAD_USE
    except OutputFailed:
        return CANNOT_TELL
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return BAD_USE if error.filename and isinstance(error, NO_SUCH_FILE) else NO
    return status if isinstance(status, int) else OK


def status_of(error: DejamqError) -> int:
    """Bad use is the caller's to change; an absent cluster or answer says nothing about the question asked."""
    if isinstance(error, ConfigError | InvalidName | MessageTooLarge) or error.code == Code.INVALID_PARAMETER:
        return BAD_USE
    return CANNOT_TELL if isinstance(error, BrokerUnavailable | SendTimeout) else NO


def _bad_use(error: Any) -> int:
    """One line, with the command whose help says more; for a command group alone, its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_USE
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dejamq"
    say(f"{error.format_message().rstrip('.')}; see: {path} --help")
    return BAD_USE
