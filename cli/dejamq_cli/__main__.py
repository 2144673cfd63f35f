"""The ``dejamq`` command."""

import logging
import sys
from typing import Any

import typer
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError, InvalidName, MessageTooLarge, SendTimeout

from dejamq_cli import (
    audit,
    bench,
    broker,
    client,
    cluster,
    consume,
    dlq,
    group,
    lab,
    message,
    offset,
    send,
    serve,
    store,
    topic,
)
from dejamq_cli.helping import flow
from dejamq_cli.output import BAD_USE, CANNOT_TELL, INTERRUPTED, NO, OK, OutputClosed, say
from dejamq_cli.watching import with_seconds

app = typer.Typer(
    name="dejamq",
    help="A RocketMQ-style message broker that can say why a message was delivered twice.",
    epilog="Exit status: 0 ok, 1 no or findings, 2 bad use, 3 cannot tell, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(serve.app, name="serve")
app.add_typer(cluster.app, name="cluster")
app.add_typer(broker.app, name="broker")
app.add_typer(topic.app, name="topic")
app.add_typer(group.app, name="group")
app.add_typer(offset.app, name="offset")
app.add_typer(client.app, name="client")
app.add_typer(message.app, name="message")
app.add_typer(dlq.app, name="dlq")
app.add_typer(store.app, name="store")
app.add_typer(lab.app, name="lab")
app.add_typer(bench.app, name="bench")
app.command("send")(send.send)
app.command("consume")(consume.consume)
audit.add_to(app)
flow(app)

UsageError: Any = typer.BadParameter.__mro__[1]
"""What the command line's library raises for bad use; it has no public name there."""


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
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return NO
    return status if isinstance(status, int) else OK


def status_of(error: DejamqError) -> int:
    """Bad use is the caller's to change; an absent cluster or answer says nothing about the question asked."""
    if isinstance(error, ConfigError | InvalidName | MessageTooLarge):
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


if __name__ == "__main__":
    sys.exit(main())
