"""``python -m dejamq_lab.dev``: a name server and a broker in one process at one port, for programs under test.

Every door is open: clients of dejamq and RocketMQ's own connect to the same address. Files are small, and topics and
groups are made on first use. ``advertise`` tells one that runs which address its clients should be told: a published
port is known only when the container runs.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from dejamq_broker.base.config import BrokerConfig
from dejamq_broker.failover import unfenced
from dejamq_namesrv.doors.services import NameServerDoors
from dejamq_proto.codes import Code, ConfigError, DejamqError
from dejamq_proto.config.settings import load
from dejamq_proto.serving import logs
from dejamq_proto.serving.server import wait_for_signal
from dejamq_proto.standard_output import OutputFailed, run

from dejamq_lab.cluster import rpc_control

BAD_USE, FAILED = 2, 1
LISTEN = "127.0.0.1:9876"
TOLD_S, POLL_S = 10.0, 0.05
"""How long routes may take to say another address, and the time between two looks."""
SMALL = {
    "mapped_file_size_commit_log": 64 << 20, "mapped_file_size_consume_queue": 60_000, "max_hash_slot_num": 10_000,
    "max_index_num": 40_000,
}  # fmt: skip
"""Sizes of files, unless the caller sets them."""


def parser() -> argparse.ArgumentParser:
    """The flags; every setting of a broker goes by ``--set``."""
    made = argparse.ArgumentParser(
        prog="dejamq dev",
        description="Run a name server and a broker in one process at one port, until SIGTERM or SIGINT. Clients of "
        "dejamq and RocketMQ's own connect there. It prints one line, `ready …`, when they can.",
        epilog="Examples: dejamq dev --listen 127.0.0.1:9876 --set enablePropertyFilter=true; "
        "dejamq dev advertise localhost:32771",
    )
    made.add_argument(
        "--listen", metavar="HOST:PORT", default=LISTEN, help=f"default {LISTEN}; port 0 takes a free one"
    )
    made.add_argument("--advertise", metavar="HOST:PORT", help="the address that clients are told, where it is another")
    made.add_argument("--store", metavar="DIR", help="keep messages here; by default they go with the process")
    made.add_argument("--console", metavar="HOST:PORT", help="pages for a browser besides; see: dejamq console --help")
    made.add_argument(
        "--control", metavar="HOST:PORT", default=os.environ.get("DEJAMQ_CONTROL"),
        help="faults and duplicates over HTTP, for tests in any language; whoever reaches it can kill this server; "
        "default DEJAMQ_CONTROL",
    )  # fmt: skip
    made.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting of a broker; repeatable"
    )
    made.add_argument("--log-level", choices=logs.LEVELS, default="warning", help="default warning")
    told = made.add_subparsers(dest="command", metavar="advertise HOST:PORT").add_parser(
        "advertise",
        help="tell the server that runs which address its clients are told from now on; see: dejamq dev advertise -h",
        description="Tell a `dejamq dev` that runs which address its clients are told from now on, for a port that is "
        "known only while it runs. It returns when routes say the new address. The server keeps listening where it is.",
        epilog="Example: docker exec mq dejamq dev advertise localhost:32771",
    )
    told.add_argument("address", metavar="HOST:PORT", help="where clients reach the server")
    told.add_argument(
        "--namesrv", metavar="HOST:PORT", default=os.environ.get("DEJAMQ_NAMESRV", LISTEN),
        help=f"where the server is reached from here; default DEJAMQ_NAMESRV, else {LISTEN}",
    )  # fmt: skip
    return made


def configured(arguments: argparse.Namespace, store: str) -> BrokerConfig:
    """Raises ConfigError."""
    given: dict[str, Any] = {
        "listen": arguments.listen,
        "store_directory": store,
        "namesrv": "",
        "log_level": arguments.log_level,
    }
    if arguments.advertise:
        given["advertise"] = arguments.advertise
    for pair in arguments.set:
        key, _, value = pair.partition("=")
        given[key.strip()] = value.strip()
    config = load(BrokerConfig, overrides=SMALL | given)
    if config.only_tls and not config.dials_tls:
        raise ConfigError("with tls_server_mode=enforcing the server registers at itself by TLS: set tls_ca too")
    return config


async def advertise(server: str, address: str) -> None:
    """Routes of this server say this address when this returns. Raises DejamqError."""
    if "=" in address or ";" in address:
        raise ConfigError(f"{address!r} is not one HOST:PORT")
    await rpc_control.update_settings(server, {"advertise": address})
    async with asyncio.timeout(TOLD_S):
        while address not in await rpc_control.registered_addresses(server):  # noqa: ASYNC110  # nobody tells
            await asyncio.sleep(POLL_S)
    print(f"advertised {address}; export NAMESRV_ADDR={address} DEJAMQ_NAMESRV={address}", flush=True)


async def serve(config: BrokerConfig) -> None:
    """Until a signal. The line on standard output says that clients can connect, and what to tell them."""
    broker = unfenced(config, NameServerDoors.in_memory())
    signalled = asyncio.create_task(wait_for_signal())
    try:
        await broker.start()
        address = broker.address
        print(f"ready dev {address}; export NAMESRV_ADDR={address} DEJAMQ_NAMESRV={address}", flush=True)
        await signalled
    finally:
        signalled.cancel()
        await broker.close()


def main() -> int:
    """The exit status: 0 after a clean end, 1 for a failure, 2 for bad use."""
    arguments = parser().parse_args()
    if arguments.command == "advertise":
        return _advertise(arguments)
    if arguments.console:
        print("dejamq-dev: --console is of the command: dejamq dev --console HOST:PORT", file=sys.stderr)
        return BAD_USE
    with ExitStack() as kept:
        store = arguments.store or kept.enter_context(tempfile.TemporaryDirectory(prefix="dejamq-dev-"))
        try:
            config = configured(arguments, store)
        except DejamqError as error:
            print(f"dejamq-dev: {error}", file=sys.stderr)
            return BAD_USE
        release_log = logs.configure(config)
        release_log()
        try:
            with suppress(KeyboardInterrupt):
                asyncio.run(_controlled(config, arguments.control, store) if arguments.control else serve(config))
        except OutputFailed:
            return FAILED
        except (DejamqError, OSError) as error:
            print(f"dejamq-dev: {error}", file=sys.stderr)
            return FAILED
    return 0


async def _controlled(config: BrokerConfig, control: str, store: str) -> None:
    """As ``serve``, in a process of its own. Raises ConfigError where the extra is missing."""
    try:
        from dejamq_lab.control.serving import serve as serve_controlled
    except ModuleNotFoundError as error:
        raise ConfigError(f"--control needs {error.name}: pip install 'dejamq[control]'") from None
    await serve_controlled(config, control, Path(store) / "control")


def _advertise(arguments: argparse.Namespace) -> int:
    try:
        asyncio.run(advertise(arguments.namesrv, arguments.address))
    except TimeoutError:
        print("dejamq-dev: the server took the address, and its routes do not say it yet", file=sys.stderr)
        return FAILED
    except DejamqError as error:
        print(f"dejamq-dev: {error}", file=sys.stderr)
        return BAD_USE if error.code == Code.INVALID_PARAMETER or isinstance(error, ConfigError) else FAILED
    return 0


if __name__ == "__main__":
    sys.exit(run("dejamq-dev", main, server=True))
