"""``python tests/rocketmq/prove_v2_proxy.py``: RocketMQ 5's clients against RocketMQ's own proxy and against dejamq.

All scenarios of each language are played at both, which print the same. A scenario that a proxy fails is told, too.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "integration"))

import v2_clients
from consumer_cluster import servers
from dejamq_lab.machines.rocketmq_proxy import RocketMQProxy, proxy_jars

PROGRAMS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "python": ("python3", v2_clients.python_program), "java": ("mvn", v2_clients.java_program),
    "go": ("go", v2_clients.go_program), "node": ("npm", v2_clients.node_program),
    "rust": ("cargo", v2_clients.rust_program),
}  # fmt: skip
TOGETHER = ("normal", "again", "delay"), ("push", "dlq", "fifo", "transaction"), ("restart",)
QUICK = {"transaction_timeout_ms": 8_000, "transaction_check_interval_ms": 2_000}
"""A program that is slow is not to be asked about transactions that it is about to end."""
THEIRS = {"transactionTimeOut": 8_000, "transactionCheckInterval": 2_000}
Told = dict[str, list[str]]


async def told(
    command: list[str], address: str, word: str, home: Path, restart: Callable[[], Awaitable[None]]
) -> Told:  # fmt: skip
    """What the program prints, by scenario; a part that fails says so."""
    found: Told = {}
    for scenarios in TOGETHER:
        try:
            found |= await v2_clients.played(command, address, word, scenarios, home, restart)
        except (AssertionError, TimeoutError) as error:
            found |= {name: [f"failed: {str(error)[-200:]!r}"] for name in scenarios}
    return found


async def ours(command: list[str], word: str, home: Path) -> Told:
    async with servers(home, **QUICK) as here:
        assert here.broker is not None
        groups = here.broker.domain.tables.groups
        groups.update(f"{word}-dlq", retry_max_times=1)
        groups.update(f"{word}-fifo", consume_message_orderly=True)

        async def restart() -> None:
            await here.stop_broker()
            await here.start_broker()

        return await told(command, here.address, word, home, restart)


async def theirs(real: RocketMQProxy, command: list[str], word: str, home: Path) -> Told:
    async def restart() -> None:
        await asyncio.to_thread(real.restart)

    return await told(command, real.address, word, home, restart)


async def compared(real: RocketMQProxy, languages: list[str], home: Path) -> bool:
    same = True
    for language in languages:
        needed, program = PROGRAMS[language]
        if shutil.which(needed) is None:
            print(f"{language}: passed over, as {needed} is not there")
            continue
        command, began = await asyncio.to_thread(program), time.monotonic()
        (home / language / "real").mkdir(parents=True)
        here = await ours(command, language, home / language)
        there = await theirs(real, command, language, home / language / "real")
        for scenario in v2_clients.SCENARIOS:
            lines = here.get(scenario, []), there.get(scenario, [])
            if lines[0] != lines[1]:
                same = False
                print(f"{language} {scenario}: dejamq {lines[0]}, RocketMQ {lines[1]}")
        print(
            f"{language}: {len(v2_clients.SCENARIOS)} scenarios compared, {time.monotonic() - began:.0f} s", flush=True
        )
    return same


def main() -> int:
    parser = argparse.ArgumentParser(description="RocketMQ 5's clients against a real proxy and dejamq.")
    parser.add_argument("languages", nargs="*", default=list(PROGRAMS), help="of: " + " ".join(PROGRAMS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="proxy-") as directory:
        home = Path(directory)
        topics = [f"{language}-{scenario}" for language in options.languages for scenario in v2_clients.SCENARIOS]
        groups = {
            name: settings
            for language in options.languages
            for name, settings in v2_clients.settings_of_groups(language).items()
        }
        with RocketMQProxy(proxy_jars(), home / "store", home / "work", THEIRS, topics, groups) as real:
            return 0 if asyncio.run(compared(real, options.languages, home)) else 1


if __name__ == "__main__":
    sys.exit(main())
