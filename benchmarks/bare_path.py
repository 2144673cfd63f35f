"""What a message path with next to nothing on it reaches on this machine, and dejamq in turn with it.

A goal that even this does not reach is one for another machine; what dejamq takes beyond it is the price of what it
does: queues, routes, retries, offsets, the journal. The path is told in ``bare_roles.py``.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import bare_roles
import msgspec
from dejamq_lab.bench import rpc_echo
from dejamq_lab.bench.client.result import BenchResult, Load, Span
from dejamq_lab.bench.measure import Bench
from dejamq_lab.bench.rounds import shown

Figures = dict[str, float]
Process = asyncio.subprocess.Process
Begin = Callable[[str], Awaitable[Process]]
UNITS = {
    "sent by submit, each future awaited": "/s", "consumed one by one": "/s", "one send at a time, median": "ms",
    "send to handler, median": "ms", "send to handler, 99th percentile": "ms",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=400_000, help="of a flood")
    parser.add_argument("--singles", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=50_000, help="messages a second, from send to handler")
    parser.add_argument("--seconds", type=int, default=5, help="that long at this rate")
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=4, help="of dejamq's topic; the bare path has one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        name, where, *numbers = options.role
        asyncio.run(role(name, where, *map(int, numbers)))
        return
    rounds = [asyncio.run(one_round(options)) for _ in range(options.rounds)]
    print(f"{'':38}{'bare':>12}{'dejamq':>12}   dejamq through the bare, by round")
    for what, unit in UNITS.items():
        bare, own = ([each[side][what] for each in rounds] for side in (0, 1))
        ratios = sorted(mine / other for mine, other in zip(own, bare, strict=True))
        middle = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(
            f"{what:38}{shown(statistics.median(bare), unit):>12}{shown(statistics.median(own), unit):>12}   {middle}"
        )


async def one_round(options: argparse.Namespace) -> tuple[Figures, Figures]:
    return await bare(options), await dejamq(options)


async def bare(options: argparse.Namespace) -> Figures:
    """Each figure with a server of its own, that has stored nothing before."""
    paced = options.rate * options.seconds
    async with server(options, options.messages) as begun:
        flood = await told(await begun("flood"))
        consumed = await told(await begun("consume"))
    async with server(options, options.singles) as begun:
        single = await told(await begun("single"))
    async with server(options, paced) as begun:
        consumer = await begun("consume")
        await told(await begun("paced"))
        late = await told(consumer)
    return figures(options.messages / flood.seconds, options.messages / consumed.seconds, single, late)


async def dejamq(options: argparse.Namespace) -> Figures:
    """As ``dejamq bench`` measures it, with the journal at ``audit``."""
    queues, size = options.queues, options.body_bytes

    def load(messages: int, **more: Any) -> Bench:
        return Bench(Load(messages, size, queues=queues, **more))

    flood = await load(options.messages).run("send")
    consumed = await load(options.messages).run("consume")
    single = await load(options.singles, mode="single").run("send")
    late = await load(options.rate * options.seconds, rate=options.rate).run("latency")
    return figures(flood.messages_per_second, consumed.messages_per_second, single, late)


def figures(sent: float, consumed: float, single: Span | BenchResult, late: Span | BenchResult) -> Figures:
    """In the order of ``UNITS``: messages a second, and the percentiles of the other two."""
    times = single.p50_ms or 0.0, late.p50_ms or 0.0, late.p99_ms or 0.0
    return dict(zip(UNITS, (sent, consumed, *times), strict=True))


@asynccontextmanager
async def server(options: argparse.Namespace, messages: int) -> AsyncIterator[Begin]:
    """With what begins a client of it, in a process of its own that is connected or about to be."""
    with tempfile.TemporaryDirectory() as folder:

        def given(role: str, where: str) -> tuple[str, ...]:
            numbers = options.body_bytes, messages, options.rate
            return (__file__, "--role", role, where, *map(str, numbers))

        async with rpc_echo.served(*given("serve", f"{folder}/log")) as address:

            async def begun(role: str) -> Process:
                program = given(role, address)
                process = await asyncio.create_subprocess_exec(sys.executable, *program, stdout=subprocess.PIPE)
                assert process.stdout is not None
                assert await process.stdout.readline(), "it did not start"
                return process

            yield begun


async def told(process: Process) -> Span:
    """What a client says at its end."""
    said, _ = await process.communicate()
    return msgspec.json.decode(said, type=Span)


async def role(name: str, where: str, body_bytes: int, messages: int, rate: int) -> None:
    if name == "serve":
        await bare_roles.serve(where, body_bytes, messages)
        return
    if name == "consume":
        span = await bare_roles.consume(where, body_bytes, messages)
    else:
        span = await bare_roles.produce(where, name, body_bytes, messages, rate)
    print(msgspec.json.encode(span).decode())


if __name__ == "__main__":
    main()
