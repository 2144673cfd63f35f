"""The ``dejamq`` command."""

import logging
import sys

import typer
from dejamq_proto.codes import BrokerUnavailable, ConfigError, DejamqError, InvalidName, MessageTooLarge, SendTimeout

from dejamq_cli import audit, bench, cluster, consume, send, serve, store, topic
from dejamq_cli.output import BAD_USE, CANNOT_TELL, INTERRUPTED, NO, OK

app = typer.Typer(
    name="dejamq",
    help="A RocketMQ-style message broker that can say why a message was delivered twice.",
    epilog="Exit status: 0 ok, 1 no or findings, 2 bad use, 3 cannot tell, 130 Ctrl-C.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(serve.app, name="serve")
app.add_typer(cluster.app, name="cluster")
app.add_typer(topic.app, name="topic")
app.add_typer(store.app, name="store")
app.add_typer(bench.app, name="bench")
app.command("send")(send.send)
app.command("consume")(consume.consume)
audit.add_to(app)


def main() -> int:
    """Run the command of this process's arguments. Errors are one line; the exit status says which kind."""
    logging.basicConfig(level=logging.ERROR, format="dejamq: %(message)s")
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else NO
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return NO
    except DejamqError as error:
        return _fail(str(error), status_of(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), NO)
    return OK


def status_of(error: DejamqError) -> int:
    """Bad use is the caller's to change; an absent cluster or answer says nothing about the question asked."""
    if isinstance(error, ConfigError | InvalidName | MessageTooLarge):
        return BAD_USE
    return CANNOT_TELL if isinstance(error, BrokerUnavailable | SendTimeout) else NO


def _fail(text: str, status: int) -> int:
    print(f"dejamq: {' '.join(text.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
