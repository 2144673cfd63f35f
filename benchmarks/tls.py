"""``python benchmarks/tls.py CERT KEY CA``: what TLS costs a ``dejamq dev``, beside plain connections.

Measured are messages a second from one producer and the server's core time for each message, for gRPC and for fast
frames, plain and with TLS; then handshakes a second, and the memory of a connection that is open, or stalls in its
handshake. The certificate must be for 127.0.0.1.
"""

import argparse
import asyncio
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from dejamq import Message, Producer
from dejamq_lab.cluster.usage import core_seconds, memory_mib

BODY, MESSAGES, LARGE, LARGE_MESSAGES = 1 << 10, 40_000, 256 << 10, 200
GREETINGS, OPEN, AT_ONCE = 600, 500, 50
SETTLE_S = 1.0
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01"


@contextmanager
def serving(*more: str) -> Iterator[tuple[int, str]]:
    """Process and address of a server with these settings more."""
    settings = [word for each in more for word in ("--set", each)]
    command = [sys.executable, "-m", "dejamq_lab.dev", "--listen", "127.0.0.1:0", *settings]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.pid, server.stdout.readline().split()[2].rstrip(";")
        finally:
            server.terminate()


async def sends(pid: int, address: str, size: int, count: int, **settings: Any) -> dict[str, float]:
    """From the first to the last answer, when the way is warm."""
    async with Producer("bench", namesrv=address, **settings) as producer:
        body = os.urandom(size)
        await producer.send(Message("t", body))
        await _sent(producer, body, count // 10)
        core, began = core_seconds(pid), time.monotonic()
        await _sent(producer, body, count)
        seconds, core = time.monotonic() - began, core_seconds(pid) - core
    return {"per_s": round(count / seconds), "mib_s": round(count * size / seconds / 2**20, 1),
            "server_us": round(core / count * 1e6, 1)}  # fmt: skip


async def _sent(producer: Producer, body: bytes, count: int) -> None:
    step = max(1, min(count, (16 << 20) // len(body)))
    for at in range(0, count, step):
        await asyncio.gather(*[producer.send(Message("t", body)) for _ in range(min(step, count - at))])


async def greetings(pid: int, address: str, ca: str) -> dict[str, float]:
    """What open connections keep, and those that stall, before memory is used again; then handshakes."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    few = asyncio.Semaphore(AT_ONCE)

    async def greet(keep: list[asyncio.StreamWriter] | None) -> None:
        async with few:
            _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        if keep is None:
            writer.close()
        else:
            keep.append(writer)

    before, kept = memory_mib(pid), list[asyncio.StreamWriter]()
    await asyncio.gather(*(greet(kept) for _ in range(OPEN)))
    await asyncio.sleep(SETTLE_S)
    opened = memory_mib(pid)
    stalled = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(OPEN)]
    for writer in stalled:
        writer.write(HALF_A_HELLO)
    await asyncio.sleep(SETTLE_S)
    both = memory_mib(pid)
    for writer in (*kept, *stalled):
        writer.close()
    await asyncio.sleep(SETTLE_S)
    core = core_seconds(pid)
    await asyncio.gather(*(greet(None) for _ in range(GREETINGS)))
    each_ms = (core_seconds(pid) - core) / GREETINGS * 1e3
    open_kib, stalled_kib = (opened - before) / OPEN * 1024, (both - opened) / OPEN * 1024
    return {
        "server_ms_each": round(each_ms, 2),
        "open_kib_each": round(open_kib, 1),
        "stalled_kib_each": round(stalled_kib, 1),
    }


async def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Every way in turn, so that a machine that gets busier does it to all."""
    found: dict[str, Any] = {}
    certificate = (f"tls_server_cert_path={options.cert}", f"tls_server_key_path={options.key}")
    with serving() as (plain_pid, plain), serving(*certificate) as (pid, address):
        for number in range(options.rounds):
            for name, where, settings in (
                ("grpc, its own port", (plain_pid, plain), {}),
                ("grpc, public port", (pid, address), {}),
                ("grpc, TLS", (pid, address), {"tls_ca": options.ca}),
                ("frames", (plain_pid, plain), {"vip_channel_enabled": True}),
                ("frames, TLS", (pid, address), {"vip_channel_enabled": True, "tls_ca": options.ca}),
            ):
                for size, count in ((BODY, MESSAGES), (LARGE, LARGE_MESSAGES)):
                    of_size = await sends(*where, size, count, **settings)
                    found.setdefault(f"{name}, {size >> 10} KiB", {})[number] = of_size
    with serving(*certificate) as (pid, address):
        found["handshakes"] = await greetings(pid, address, options.ca)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cert")
    parser.add_argument("key")
    parser.add_argument("ca")
    parser.add_argument("--rounds", type=int, default=2)
    found = asyncio.run(measured(parser.parse_args()))
    for name, figures in found.items():
        print(name, msgspec.json.encode(figures).decode())
    print("load_average", os.getloadavg()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
