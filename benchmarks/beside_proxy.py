"""``python benchmarks/beside_proxy.py``: RocketMQ 5's official clients against RocketMQ's own proxy and against dejamq.

Python's and Java's client send 1 KiB one by one, and then receive 32 at a time and acknowledge one by one. Both servers
are up all the time, and take turns. A proxy in its local mode is one process with
its broker. Needs Java and Maven.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import service_common as common
from dejamq_lab.machines.rocketmq_proxy import RocketMQProxy, proxy_jars

sys.path.append(str(Path(__file__).parents[1] / "tests" / "rocketmq"))

import v2_clients

CLIENTS: dict[str, Callable[[], list[str]]] = {
    "python": v2_clients.python_program, "java": v2_clients.java_program,
}  # fmt: skip
OURS, THEIRS = "dejamq", "RocketMQ"
Figures = dict[str, tuple[float, float]]
"""What was done -> how often a second, and the median of a call in ms."""


async def unasked() -> None:
    raise AssertionError("this scenario restarts nothing")


async def once(command: list[str], address: str, word: str, home: Path) -> Figures:
    lines = (await v2_clients.played(command, address, word, ["speed"], home, unasked))["speed"]
    return {what: (float(rate), float(median)) for what, rate, median in map(str.split, lines)}


async def measured(
    options: argparse.Namespace, real: RocketMQProxy, home: Path
) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    async with common.cluster(dict.fromkeys(topics(options), 4)) as servers:
        places = {OURS: servers.namesrv, THEIRS: real.address}
        for client in options.clients:
            command = await asyncio.to_thread(CLIENTS[client])
            for number in range(options.rounds):
                for place, address in places.items():
                    figures = await once(command, address, f"{client}{number}", home)
                    found.setdefault((client, place), []).append(figures)
                    print(f"{client} {number} {place:10} {figures}", flush=True)
    return found


def topics(options: argparse.Namespace) -> list[str]:
    return [f"{client}{number}-speed" for client in options.clients for number in range(options.rounds)]


def table(found: dict[tuple[str, str], list[Figures]]) -> str:
    """Medians of the rounds; ratios are of rates in the same round."""
    lines = []
    for client in dict.fromkeys(client for client, _ in found):
        ours, theirs = found[client, OURS], found[client, THEIRS]
        for what in ours[0]:
            ratio = statistics.median(one[what][0] / other[what][0] for one, other in zip(ours, theirs, strict=True))
            rates = [statistics.median(each[what][0] for each in rounds) for rounds in (ours, theirs)]
            medians = [statistics.median(each[what][1] for each in rounds) for rounds in (ours, theirs)]
            lines.append(
                f"{client:7}{what:13} dejamq {rates[0]:7,.0f}/s, a call {medians[0]:6.2f} ms   "
                f"RocketMQ {rates[1]:7,.0f}/s, a call {medians[1]:6.2f} ms   ratio of rates {ratio:.2f}"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="*", choices=list(CLIENTS), default=list(CLIENTS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proxy-") as directory:
        home = Path(directory)
        with RocketMQProxy(proxy_jars(), home / "store", home / "work", {}, topics(options), {}, heap="1g") as real:
            print(table(asyncio.run(measured(options, real, home))))


if __name__ == "__main__":
    main()
