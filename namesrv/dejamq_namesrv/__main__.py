"""``python -m dejamq_namesrv``: one name server until a signal."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any

from dejamq_proto.codes import ConfigError, DejamqError
from dejamq_proto.config.settings import load
from dejamq_proto.serving import logs
from dejamq_proto.serving.logs import LEVELS
from dejamq_proto.serving.server import wait_for_signal
from dejamq_proto.standard_output import OutputFailed, run

from dejamq_namesrv.app import NameServer
from dejamq_namesrv.config import NamesrvConfig


def parser() -> argparse.ArgumentParser:
    """The flags of a name server; everything else goes by ``--set``."""
    parser = argparse.ArgumentParser(
        "dejamq serve namesrv",
        description="Run one name server until SIGTERM or SIGINT: brokers register, clients ask it. It prints one "
        "line, `ready …`, when it serves.",
        epilog="Example: dejamq serve namesrv --listen 127.0.0.1:9876",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to serve (default 127.0.0.1:9876; port 0: any)")
    parser.add_argument("--config", metavar="FILE", help="settings as TOML, or RocketMQ's key=value .conf")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated")
    parser.add_argument("--journal-dir", metavar="DIR", help="keep the journal for the audit here")
    parser.add_argument("--journal-level", choices=("off", "audit", "forensic"), help="default audit")
    parser.add_argument(
        "--metrics", dest="metrics_listen", metavar="HOST:PORT", help="serve /metrics there; default off"
    )
    parser.add_argument("--log-level", choices=LEVELS, help="default info")
    parser.add_argument(
        "--log-json", dest="log_format", action="store_const", const="json", help="log one JSON object a line"
    )
    return parser


def config_of(arguments: argparse.Namespace, unused: Callable[[str], None] = lambda key: None) -> NamesrvConfig:
    """``unused``: as of ``load``. Raises ConfigError for values that cannot be."""
    overrides: dict[str, Any] = {}
    for pair in arguments.set:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set wants KEY=VALUE, not {pair!r}")
        overrides[key.strip()] = value.strip()
    for flag in ("listen", "journal_dir", "journal_level", "metrics_listen", "log_level", "log_format"):
        if getattr(arguments, flag) is not None:
            overrides[flag] = getattr(arguments, flag)
    return load(NamesrvConfig, file=arguments.config, overrides=overrides, unused=unused)


async def serve(config: NamesrvConfig, release_log: Callable[[], None] = lambda: None) -> None:
    """Until a signal. ``ready namesrv NAME ADDRESS`` on standard output says that brokers and clients are served."""
    server = NameServer(config)
    signalled = asyncio.create_task(wait_for_signal())  # before anybody can read that we are ready
    try:
        address = await server.start()
        release_log()
        print(f"ready namesrv {config.name} {address}", flush=True)
        await signalled
    finally:
        signalled.cancel()
        await server.close()


def main() -> int:
    """The exit status: 0 after a clean end, 1 for a failure, 2 for bad use. Errors are one line on standard error."""
    arguments = parser().parse_args()
    unused: list[str] = []
    try:
        config = config_of(arguments, unused.append)
    except ConfigError as error:
        print(f"dejamq-namesrv: {error}", file=sys.stderr)
        return 2
    release_log = logs.configure(config)
    logs.tell_start(config, server="namesrv", unused=unused)
    try:
        asyncio.run(serve(config, release_log))
    except OutputFailed:
        return 1
    except (DejamqError, OSError) as error:
        print(f"dejamq-namesrv: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run("dejamq-namesrv", main, server=True))
