"""``python tests/rocketmq/prove_tls_clients.py``: RocketMQ's own clients over TLS, where only TLS is taken.

Programs of the official clients in Python, Java, Go and Node by gRPC, and of Java 5.3.3 by remoting, see what they see
without TLS. The clients in Java and Go trust any certificate, as is their default.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

FOLDERS = ("tests/rocketmq", "tests/integration", "tests/unit")
sys.path[:0] = [str(Path(__file__).parents[2] / folder) for folder in FOLDERS]

import v2_clients  # noqa: E402  # helpers of the tests are found by their folders
from certificates import Authority  # noqa: E402
from dejamq_broker.app import Broker  # noqa: E402
from dejamq_broker.base.config import BrokerConfig  # noqa: E402
from dejamq_broker.store import StoreConfig  # noqa: E402
from dejamq_namesrv.doors.services import NameServerDoors  # noqa: E402
from java_clients import by_scenario, compiled, java, output_of  # noqa: E402

OFFICIAL: dict[str, Callable[[], list[str]]] = {
    "python": v2_clients.python_program, "java": v2_clients.java_program, "go": v2_clients.go_program,
    "node": v2_clients.node_program,
}  # fmt: skip
WANTED = {
    "normal": ["20 messages, attempts {1}", "tea k-7 v-7", "then 0"],
    "again": ["back 2", "over 2"],
    "push": ["21 messages, bad 1 2 good {(1,)}"],
    "fifo": ["a 0 1 2 3 4 5 6 7 8 9", "b 0 1 2 3 4 5 6 7 8 9"],
    "end": [],
}
REMOTING = ["sync", "batch", "oneway", "ordered", "retry", "transaction"]


@asynccontextmanager
async def server(folder: Path, **tls: Any) -> AsyncIterator[str]:
    config = BrokerConfig(
        listen="127.0.0.1:0", namesrv="", store_directory=str(folder / "store"), broker_fast_failure_enable=False,
        store=StoreConfig(mapped_file_size_commit_log=64 << 20, disk_check_enable=False), **tls,
    )  # fmt: skip
    broker = Broker(config, guest=NameServerDoors.in_memory())
    await broker.start()
    for word in OFFICIAL:
        broker.domain.tables.groups.update(f"{word}-fifo", consume_message_orderly=True)
    yield broker.address
    await broker.close()


async def by_remoting(address: str, authority: Authority | None, folder: Path) -> dict[str, list[str]]:
    options = []
    if authority is not None:
        options = [
            "-Dtls.enable=true", "-Dtls.test.mode.enable=false", "-Dtls.client.authServer=true",
            f"-Dtls.client.trustCertPath={authority.pem}", f"-Dtls.config.file={folder / 'none'}",
        ]  # fmt: skip
    class_path = await asyncio.to_thread(compiled, "5.3.3")
    return by_scenario(await output_of(java(class_path, folder, *options, "Scenarios", address, "r", *REMOTING)))


async def never() -> None:
    raise AssertionError("no scenario here restarts the broker")


async def proven(folder: Path) -> int:
    """How many programs saw something else."""
    authority, failures = Authority(folder, "ours"), 0
    tls = {"tls_ca": authority.pem} | authority.issue("server").server("enforcing")
    more = {"WITH_TLS": "1", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": authority.pem}
    async with server(folder / "secure", **tls) as secure, server(folder / "plain") as plain:
        wanted = await by_remoting(plain, None, folder)
        found = await by_remoting(secure, authority, folder)
        failures += _told("java by remoting", found, wanted)
        for name, program in OFFICIAL.items():
            command = await asyncio.to_thread(program)
            scenarios = [scenario for scenario in WANTED if scenario != "end"]
            told = await v2_clients.played(command, secure, name, scenarios, folder, never, **more)
            failures += _told(name, told, WANTED)
    return failures


def _told(name: str, found: dict[str, list[str]], wanted: dict[str, list[str]]) -> int:
    print(name, "sees what it should" if found == wanted else f"sees {found}, not {wanted}", flush=True)
    return found != wanted


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        failures = asyncio.run(proven(Path(folder)))
    print(f"{len(OFFICIAL) + 1} programs, {failures} failures, load {os.getloadavg()[0]:.0f}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
