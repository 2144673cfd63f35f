"""``python -m dejamq_broker``: parse, build, run until a signal."""

import argparse
import asyncio
import ctypes
import gc
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.config.settings import load
from dejamq_proto.journal.writer import Level
from dejamq_proto.serving import logs
from dejamq_proto.serving.logs import LEVELS
from dejamq_proto.serving.server import wait_for_signal
from dejamq_proto.standard_output import OutputFailed, run

from dejamq_broker.app import Broker
from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.failover import FailoverBroker, broker_of

BAD_USE, FAILED = 2, 1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def parser() -> argparse.ArgumentParser:
    """The flags; settings without a flag of their own go by ``--set``."""
    made = argparse.ArgumentParser(
        prog="dejamq serve broker",
        description="Run one broker until SIGTERM or SIGINT; it prints one line, `ready …`, when clients can use it.",
        epilog="Example: dejamq serve broker --name broker-a --store ./store --namesrv 127.0.0.1:9876",
    )
    made.add_argument("--name", dest="broker_name", metavar="NAME", help="broker name (default broker-a)")
    made.add_argument("--id", dest="broker_id", metavar="N", help="0 is the master (default 0)")
    made.add_argument("--cluster", dest="cluster_name", metavar="NAME", help="default DefaultCluster")
    made.add_argument("--listen", metavar="HOST:PORT", help="default 127.0.0.1:10911; port 0 takes a free one")
    made.add_argument(
        "--advertise", action="append", metavar="[NAME=]HOST:PORT",
        help="address that clients are told; with NAME= those that dialled their name server by NAME; repeatable",
    )  # fmt: skip
    made.add_argument("--store", dest="store_directory", metavar="DIR", help="everything durable (default ./store)")
    made.add_argument("--namesrv", metavar="HOST:PORT;…", help="all name servers (default 127.0.0.1:9876, '' for none)")
    made.add_argument("--config", metavar="FILE", help="TOML, or RocketMQ's broker.conf")
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting, in either spelling; repeatable"
    )
    made.add_argument("--journal-dir", metavar="DIR", help="write the journal for the audit there")
    made.add_argument("--journal-level", choices=list(Level), help="default audit")
    made.add_argument("--metrics", dest="metrics_listen", metavar="HOST:PORT", help="serve /metrics there; default off")
    made.add_argument("--log-level", choices=LEVELS, help="default info")
    made.add_argument(
        "--log-json", dest="log_format", action="store_const", const="json", help="log one JSON object a line"
    )
    return made


def configured(arguments: argparse.Namespace, unused: Callable[[str], None] = lambda key: None) -> BrokerConfig:
    """File < environment < flags. ``unused``: as of ``load``. Raises ConfigError."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    file, pairs = given.pop("config", None), given.pop("set")
    overrides: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise ConfigError(f"--set takes KEY=VALUE, not {pair!r}")
        overrides[key.strip()] = value.strip()
    return load(BrokerConfig, file=file, overrides=overrides | given, unused=unused)


def tune_memory() -> None:
    """Keep big buffers on the heap: glibc otherwise maps each answer over 128 KiB afresh, which halves pulls.

    Only here and never when embedded: a process of somebody else keeps its own settings.

    The collector's first threshold is raised because a broker makes many short-lived objects and few cycles. With the
    default of 700 it would look through everything several times for each pull.
    """
    gc.set_threshold(50_000)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
    except (OSError, AttributeError):
        pass  # no glibc: its defaults are somebody else's concern


def settle_memory() -> None:
    """Objects that imports and the start have made stay: a full collection that looks through them stops the loop for
    100 ms.
    """
    gc.collect()
    gc.freeze()


def allow_descriptors() -> None:
    """Take all the descriptors that the system grants, as a Java process does: one goes to each client.

    While a flush finds none left, the store refuses writes.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems say unlimited and do not mean it
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def serve(config: BrokerConfig, release_log: Callable[[], None] = lambda: None) -> None:
    """From start to a clean end. Raises what ``Broker.start`` raises.

    A signal that arrives while the store still recovers ends the start as well. Recovery runs in a thread that cannot
    be interrupted, so ``Broker.close`` waits for it and leaves the store as a clean stop does.

    The line ``ready broker NAME ADDRESS`` on standard output is a promise to the starter of this process. From then on
    clients are served, and the name servers were asked once.
    """
    broker = broker_of(config)
    asyncio.get_running_loop().call_later(logs.HOLD_S, release_log)
    signalled = asyncio.create_task(wait_for_signal(), name="signals")
    starting = asyncio.create_task(broker.start(), name="start")
    try:
        await asyncio.wait((signalled, starting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            settle_memory()
            release_log()
            print(f"ready broker {config.broker_name} {broker.address}", flush=True)
            await _until(signalled, broker)
    finally:
        for task in (starting, signalled):
            task.cancel()
        await asyncio.wait((starting, signalled))
        await broker.close()


async def _until(signalled: "asyncio.Task[signal.Signals]", broker: Broker | FailoverBroker) -> None:
    """A signal, or the moment in which the broker cannot go on by itself. Raises its error."""
    if not isinstance(broker, FailoverBroker) or broker.ended is None:
        await signalled
        return
    await asyncio.wait((signalled, broker.ended), return_when=asyncio.FIRST_COMPLETED)
    if broker.ended.done():
        broker.ended.result()


def main() -> int:
    """The exit status: 0 after a clean end, 1 for a failure, 2 for bad use."""
    unused: list[str] = []
    try:
        config = configured(parser().parse_args(), unused.append)
    except ConfigError as error:
        return _fail(error, BAD_USE)
    release_log = logs.configure(config)
    logs.tell_start(config, server="broker", unused=unused)
    tune_memory()
    allow_descriptors()
    try:
        asyncio.run(serve(config, release_log))
    except OutputFailed:
        return FAILED
    except (DejamqError, OSError) as error:
        return _fail(error, FAILED)
    return 0


def _fail(error: Exception, status: int) -> int:
    """One line on standard error, whatever the text looked like; never a traceback for an error that an operator can
    mend.
    """
    print(f"dejamq-broker: {' '.join(str(error).split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(run("dejamq-broker", main, server=True))
